"""This package has what operators are made of: argument checks, windows, and the operators that others build on.

An operator beside this package imports only from here, never another operator.
"""
