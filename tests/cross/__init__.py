"""Kernels compiled for machines that are not this one, run in emulators, and compared with NumPy.

``python -m tests.cross --target aarch64`` runs the tests of te.ops there; :mod:`.machines` lists the targets.
"""
