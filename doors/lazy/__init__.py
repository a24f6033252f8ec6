"""This package records operators on lazy arrays as a graph, and compiles it when their values are used."""
