"""The command line: ``tilewright tune | bench | build | show | db | report | workloads | doctor``.

One file per command; each parses its arguments, calls one function of :mod:`tilewright.driver`, and prints.
:mod:`.main` finds the commands and turns errors into messages and exit codes.
"""
