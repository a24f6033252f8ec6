"""This package holds the rewrites that primitives are made of: loop nests, copies of buffers, replaced accesses."""
