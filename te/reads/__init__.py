"""This package looks at what computations read: it checks that reads are inside the shapes, and simplifies their indices."""
