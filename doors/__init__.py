"""Doors let programs of other frameworks call Tilewright: torch.compile, and kernels as operators of PyTorch."""
