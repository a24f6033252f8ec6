"""This package holds the preconditions of primitives: each is checked, worded and hinted at in one place."""
