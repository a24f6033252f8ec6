"""This package holds the preconditions of primitives: each is checked, worded and hinted at in one place.

- ``lookup`` finds what handles name.
- ``block_preconditions`` asks about a block: its kind and scope, and its body, axes and loops.
- ``loop_preconditions`` asks about loops: their form, and the order of their iterations.
- ``copied_values`` asks whether a copy of a buffer holds what its readers need.
"""
