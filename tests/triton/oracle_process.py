"""Runs kernels of a file with the package ``triton`` in its interpreter: a process of its own, since it reads the environment at
its import."""

import json
import sys

import numpy as np
import torch


def main(path, request, answer):
    asked = json.load(open(request + ".json"))
    arrays = np.load(request + ".npz")
    space = {"__name__": "kernels", "__file__": path}
    import importlib.util

    spec = importlib.util.spec_from_file_location("block_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    del space
    out = {}
    for n, (kernel, grid, args, named) in enumerate(asked):
        given = [torch.from_numpy(arrays[a["array"]].copy()) if isinstance(a, dict) else a for a in args]
        named = {k: getattr(module.tl, v[3:]) if str(v).startswith("tl.") else v for k, v in named.items()}
        getattr(module, kernel)[tuple(grid)](*given, **named)
        for k, a in enumerate(given):
            if isinstance(a, torch.Tensor):
                out[f"{n}_{k}"] = a.numpy()
    np.savez(answer, **out)


if __name__ == "__main__":
    main(*sys.argv[1:])
