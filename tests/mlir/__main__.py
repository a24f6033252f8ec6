"""Prints the table of docs/guides/mlir.md."""

from .iree_table import table

if __name__ == "__main__":
    print(table())
