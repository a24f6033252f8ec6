"""When the parts of a circuit run: sums as trees, blocks in stages, pipelines with their intervals."""
