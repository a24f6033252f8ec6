"""This script times a language model of Llama's form: words per second of prompts and of decoding with a cache.

    python benchmarks/decoding.py [--size 0.1B] [--bits 32,8,4] [--cache float32] [--context 512] [--seconds 4] [--threads 1] [--out rows.jsonl]

The model is that of ``examples/decoder.py``, with seeded random weights. Decoding is timed with the cache filled up to ``--context``; the
last word is read again and again. The bandwidth bound is the time of reading as many bytes as the weights and the filled part of
the cache have, measured in turns with it; times are minima.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from nbits_products import in_turns, reading
from table import print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from decoder import TINY, Decoder, Sizes, random_weights

SIZES = {
    "tiny": TINY,
    "0.1B": Sizes(),
    "1B": Sizes(layers=16, width=2048, heads=32, groups=8, inner=8192),
}
BYTES = {32: 4.0, 8: 1.0, 4: 0.5 + 4 / 32}
"""The bytes of a weight; of 4 bits, 32 share a scale."""


def row_of(name: str, weights: dict[str, Any], bits: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of a model with weights of ``bits`` bits."""
    sizes, target = SIZES[name], f"native -num-cores={chosen.threads}"
    context = min(chosen.context, sizes.bound, sizes.prompt)
    start = time.perf_counter()
    model = Decoder(sizes, weights, bits, target, chosen.cache)
    building = time.perf_counter() - start
    prompt = list(np.random.default_rng(0).integers(0, sizes.words, context))

    def read_prompt() -> None:
        model.reset()
        model(prompt)

    def decode() -> None:
        model.length = context - 1
        model([1])

    products = sum(w.size for n, w in weights.items() if w.ndim == 2 and n != "embedding")
    each = model.cache.itemsize * sizes.depth + 4 * (chosen.cache == "int8")
    cached = 2 * sizes.layers * sizes.groups * context * each
    count = round(products * BYTES[bits]) + cached
    read_prompt()  # builds what is built at the first call
    first = in_turns({"prompt": read_prompt}, chosen.seconds)
    best = first | in_turns({"decode": decode, "reading": reading(count, target)}, chosen.seconds)
    return {"model": name, "bits": bits, "cache": chosen.cache, "context": context, "threads": chosen.threads, "build": building,
            "bytes": count, "seconds": best}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="0.1B", choices=[*SIZES])
    parser.add_argument("--bits", default="32,8,4")
    parser.add_argument("--cache", default="float32", choices=("float32", "float16", "int8"))
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    weights, table = random_weights(SIZES[chosen.size]), []
    for bits in map(int, chosen.bits.split(",")):
        row = row_of(chosen.size, weights, bits, chosen)
        if chosen.out:
            with chosen.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        best = row["seconds"]
        table.append([str(bits), f"{row['context'] / best['prompt']:.0f}", f"{1 / best['decode']:.1f}",
                      f"{best['reading'] / best['decode']:.2f}", f"{row['bytes'] / 1e6:.0f} MB", f"{row['build']:.0f} s"])  # fmt: skip
    head = ["bits", "words/s of the prompt", "words/s decoded", "of the bandwidth", "read for a word", "build"]
    print_table(f"{chosen.size}, {min(chosen.context, SIZES[chosen.size].bound)} words in the cache", head, table)


if __name__ == "__main__":
    main()
