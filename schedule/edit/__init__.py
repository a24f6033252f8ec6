"""This package holds the rewrites that several primitives share.

- ``loop_nests`` and ``buffers`` make and replace statements, loops, blocks and accesses; ``buffers`` also inserts the copy of a
  buffer, and says where.
- ``inlining`` moves computation; ``block_division`` makes blocks of loops.

Every step that copies a buffer starts from a ``CopyRequest``: which buffer, for which scope. It chooses a place and a layout.
"""
