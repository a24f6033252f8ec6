"""Kernels as circuits: run in simulators, checked by a synthesizer; ``python -m tests.hardware`` prints their cycles."""
