"""The rules of the house that a program can check: floors, circles, leaves, sizes, names and form.

``python -m tests.house`` prints what the tests measure.
"""
