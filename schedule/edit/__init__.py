"""This package holds the rewrites that primitives are made of.

- ``statement_edits``, ``loop_nests``, ``element_blocks`` and ``buffer_replacement`` make and replace statements, loops,
  blocks and accesses.
- ``copy_stage`` inserts the copy of a buffer; ``copy_place`` says where, ``copied_box`` and ``copied_element`` say what.
- ``moved_block``, ``inlined_block`` and ``inlined_consumer`` move computation; ``block_division`` and ``blockized_loops``
  make blocks of loops; ``known_reduction`` and ``reduction_loops`` read reductions.
- ``bindings`` changes loop variables; ``intrinsic_matcher`` finds the description of a tensor intrinsic.
- ``buffer_arguments``, ``index_map_arguments`` and ``annotations`` turn arguments into what they name.
"""
