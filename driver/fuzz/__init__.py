"""The fuzzer: random programs under random chains of schedule primitives.

Whatever a chain of up to twenty primitives makes of a program must still be a valid program, compute exactly the same
numbers in the interpreter and, for a share of the chains, as machine code; it must survive printing and parsing, and its
trace, taken through JSON, must make it again. A primitive that refuses must do so with a ``ScheduleError`` and leave the
schedule alone.

:mod:`.programs` draws te programs, :mod:`.steps` draws one primitive with arguments, :mod:`.chain` runs a chain and
checks it, :mod:`.shrink` finds the steps that a failure needs, ``python -m tilewright.driver.fuzz`` runs any number:

    python -m tilewright.driver.fuzz --chains 50000 --jobs 8
    python -m tilewright.driver.fuzz --seed 1234 --steps 3,7,11        # one failure again
"""

from .chain import Chain, Failure, Outcome, run_chain
from .programs import Program, random_program
from .shrink import shrink
from .steps import STEPS

__all__ = [
    "STEPS",
    "Chain",
    "Failure",
    "Outcome",
    "Program",
    "random_program",
    "run_chain",
    "shrink",
]
