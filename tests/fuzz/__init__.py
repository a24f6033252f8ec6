"""The fuzzer: random programs under random chains of schedule primitives.

Whatever a chain of up to twenty primitives makes of a program must still be a valid program, compute exactly the same
numbers in the interpreter and, for a share of the chains, as machine code; it must survive printing and parsing, and its
trace, taken through JSON, must make it again. A primitive that refuses must do so with a ``ScheduleError`` and leave the
schedule alone.

:mod:`.random_programs` draws te programs, :mod:`.all_steps` draws one primitive with arguments, :mod:`.chain` runs a
chain and checks it, :mod:`.shrinking` finds the steps that a failure needs. In the checkout, ``python -m tests.fuzz``
runs any number of chains:

    python -m tests.fuzz --chains 50000 --jobs 8
    python -m tests.fuzz --seed 1234 --steps 3,7,11        # one failure again
"""

from .all_steps import STEPS
from .chain import Chain, Failure, Outcome, run_chain
from .random_programs import Program, random_program
from .shrinking import shrink

__all__ = ["STEPS", "Chain", "Failure", "Outcome", "Program", "random_program", "run_chain", "shrink"]
