"""Analyses of programs: the tree of statements, accesses, scopes, regions and dependences.

Each analysis returns a result, None or a :class:`~tilewright.tir.expr.Reason`; what a caller makes of a reason
(an error, a note, another way) is its own matter.

:mod:`.tree` finds blocks, loops and the path from the root. :mod:`.access` is the one collector: ``accesses_below(stmt)`` has every load,
store, declared region, allocation and pointer, with the loops, blocks and conditions around it. :mod:`.regions` joins
accesses to the regions of a block, and finds those that a block does not declare. :mod:`.scope` tells
producers, consumers, complete and reduction blocks. :mod:`.footprint` finds the elements that accesses cover, and :mod:`.region_cover`
whether a block has written all that a reader needs. :mod:`.dependence` says whether iterations depend on each other, by integers alone
where these decide, and which dependences do not matter. :mod:`.known_ranges` makes analyzers that know the
loops and conditions around a statement.
"""
