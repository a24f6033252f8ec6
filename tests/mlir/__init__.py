"""MLIR: what goes out is compiled and run by IREE and by LLVM's own tools, and comes in again.

``python -m tests.mlir`` prints the table of docs/guides/mlir.md.
"""
