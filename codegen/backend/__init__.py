"""What every back end does in the same way; the table of back ends is in :mod:`..late_tables`.

A back end turns a lowered function into text. :class:`.emitter.Emitter` holds what is in scope and dispatches on the
types of nodes; its tables ``STATEMENTS`` and ``EXPRESSIONS`` decide what a node means and call the words of a target, which
are its abstract methods. :mod:`.analyses` has the bounds of integers, and what a statement uses from outside and may write;
:mod:`..lane_offsets` the addresses that the lanes of an access have.

Import from the modules; this package imports none of them. A target of 150 lines is in docs/guides/toy-target.md.
"""

__all__: list[str] = []
