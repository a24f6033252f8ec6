"""This package writes MLIR: values, functions on tensors (:mod:`.linalg_writer`) and over memory
(:mod:`.loop_writer`)."""
