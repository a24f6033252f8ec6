"""This package holds the preconditions of primitives: each is checked, worded and hinted at in one place.

- ``block_preconditions`` finds what handles name, and asks about a block: its kind and scope, and its body, axes and loops;
  and whether a copy of a buffer holds what its readers need.
- ``loop_preconditions`` asks about loops: their form, and the order of their iterations; and about those of reductions.
"""
