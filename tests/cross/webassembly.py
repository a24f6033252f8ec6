"""Runs functions of a WebAssembly module in wasmtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


class WasmModule:
    """An instance of a module, whose functions take NumPy arrays."""

    def __init__(self, path: Path) -> None:
        import wasmtime

        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        self.instance = wasmtime.Instance(self.store, wasmtime.Module.from_file(engine, str(path)), [])
        self.exports = self.instance.exports(self.store)
        self.memory = self.exports["memory"]

    def run(self, lowered: Any, values: Sequence[int | float], arrays: Sequence[Any]) -> None:
        """Call a function once; ``values`` are its arguments, of which those of buffers are replaced by addresses."""
        places, left = [], list(arrays)
        for p in lowered.params:
            places.append(self.placed(left[len(places)]) if p.kind == "buffer" else 0)
        words = [place or value for place, value in zip(places, values, strict=True)]
        code = self.exports[lowered.name](self.store, *words)
        if code:
            raise RuntimeError(f"{lowered.name} returned {code}")
        for p, place, a in zip(lowered.params, places, arrays, strict=False):
            if p.kind == "buffer" and a.flags.writeable:
                raw = bytes(self.memory.read(self.store, place, place + a.nbytes))
                a[...] = np.frombuffer(raw, a.dtype).reshape(a.shape)
        for place in reversed([place for place in places if place]):
            self.exports["tw_free"](self.store, place)

    def placed(self, array: Any) -> int:
        """Return the address of a copy in the module's memory."""
        place = self.exports["tw_alloc"](self.store, array.nbytes)
        self.memory.write(self.store, np.ascontiguousarray(array).tobytes(), place)
        return int(place)
