"""This package has the words of MLIR: types, operations, templates, affine maps, signatures, for writers and
readers."""
