"""The habits of the house that a program can check: no circle of imports, first sentences, generated signatures."""
