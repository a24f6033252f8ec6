"""Recipes are schedule functions with named parameters, one for each kind of kernel.

The tuner's rules call them with the decisions of a candidate, kernels scheduled by hand with numbers of their own.
``loop_steps`` has the steps that several recipes take.
"""
