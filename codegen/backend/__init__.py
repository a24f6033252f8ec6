"""What every back end does in the same way, and the table of back ends.

A back end turns a lowered function into text. :class:`.emitter.Emitter` holds what is in scope and dispatches on the
types of nodes; its tables ``STATEMENTS`` and ``EXPRESSIONS`` decide what a node means and call the words of a target, which
are its abstract methods. :mod:`.registry` has the table, :mod:`.storage` the place of each scratch buffer,
:mod:`.lane_offsets` the addresses that the lanes of an access have, :mod:`.value_ranges` the bounds of integers,
:mod:`.effects` what a statement uses from outside and what it may write.

Import from the modules; this package imports none of them. A target of 150 lines is in docs/guides/toy-target.md.
"""

__all__: list[str] = []
