"""Doors let programs of other frameworks call Tilewright: torch.compile, and kernels as operators of PyTorch.

``tilewright.torch`` has the backend of torch.compile (:mod:`.compile_backend`) and kernels as operators (:mod:`.torch_door`).
``tilewright.lazy`` (:mod:`.lazy_door`) records expressions and compiles them once per structure (:mod:`.lazy_array`).
"""
