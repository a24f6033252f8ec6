"""Tilewright: declare a computation once, schedule it separately, and let a tuner find the fastest schedule."""

__version__ = "0.1.0"
