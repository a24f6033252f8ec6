"""This package reads MLIR: values, functions on tensors (:mod:`.linalg_reader`) and over memory
(:mod:`.loop_reader`)."""
