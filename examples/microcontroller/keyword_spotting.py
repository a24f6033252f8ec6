"""A keyword-spotting network in int8 for a Cortex-M7: C without a heap, weights in flash, run in QEMU.

    python examples/microcontroller/keyword_spotting.py FOLDER

writes FOLDER/network.c (the kernels), weights.h and main.c, and, where arm-none-eabi-gcc and qemu-system-arm are
installed, prints the sizes of flash and RAM and what each layer costs. The network takes a spectrogram of 49 x 10
(one second of speech), as MLPerf Tiny's does: a convolution, three depthwise-separable blocks, a mean, a classifier.
Values are uint8 with a zero point of 0 (every layer ends in a relu), weights int8, sums int32; a layer's sums are
multiplied by a power of two and saturated.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from board import missing_tools, run_on_board, sizes_of

import tilewright as tw
from tilewright import te
from tilewright.schedule import TensorIntrin

HEIGHT, WIDTH, CHANNELS, WORDS, BLOCKS = 25, 5, 32, 12, 3
TARGET = "c -mcpu=cortex-m7"

DOT = """
@T.prim_func
def dot4_{form}(
    A: T.Buffer((4,), "uint8", offset_factor=1),
    B: T.Buffer((4,), "int8", offset_factor=1),
    C: T.Buffer((1,), "int32", offset_factor=1),
):
    T.func_attr({{"any_scope": True}})
    with T.block("root"):
        T.reads(C[0], A[0:4], B[0:4])
        T.writes(C[0])
        {body}
"""
LOOP = """for k in range(4):
            with T.block("update"):
                vk = T.axis.reduce(4, k)
                C[0] = C[0] + T.cast(A[vk], "int32") * T.cast(B[vk], "int32")"""


def smlad() -> str:
    """Returns the name of the intrinsic for four products of bytes, which becomes two SMLAD."""
    if "smlad_u8i8" not in TensorIntrin.names():
        one = tw.tir.parse(DOT.format(form="desc", body=LOOP))
        two = tw.tir.parse(
            DOT.format(form="impl", body='C[0] = T.dot4_u8i8(C[0], A.vload([0], "uint8x4"), B.vload([0], "int8x4"))')
        )
        TensorIntrin.register("smlad_u8i8", one, two)
    return "smlad_u8i8"


def requantized(total, shift):
    """Returns sums as uint8: divided by a power of two, negative ones 0, large ones 255."""

    def scaled(*i):
        small = te.max(te.min(total[i] >> shift, te.const(255, "int32")), te.const(0, "int32"))
        return small.astype("uint8")

    return te.compute(total.shape, scaled, "out")


def by_pixel(func):
    """Returns a schedule that computes the sums of one pixel at a time, so that their memory is small."""
    sch = tw.Schedule(func)
    *outer, _ = sch.get_loops("out")
    sch.compute_at("total", outer[-1])
    return sch


def pointwise():
    """Returns a convolution of 1 x 1: a product of pixels and weights."""
    x, w = te.placeholder((HEIGHT * WIDTH, CHANNELS), "uint8", "x"), te.placeholder((CHANNELS, CHANNELS), "int8", "w")
    k = te.reduce_axis((0, CHANNELS), "k")
    total = te.compute((HEIGHT * WIDTH, CHANNELS),
                       lambda i, o: te.sum(x[i, k].astype("int32") * w[o, k].astype("int32"), k), "total")  # fmt: skip
    sch = by_pixel(te.create_prim_func([x, w, requantized(total, 9)]))
    *_, k = sch.get_loops("total")
    _, four = sch.split(k, [None, 4])
    sch.decompose_reduction("total", sch.get_loops("total")[-2])
    sch.tensorize(four, smlad())
    return sch


def depthwise():
    """Returns a convolution of 3 x 3 for each channel, zeros around the image."""
    x = te.placeholder((HEIGHT, WIDTH, CHANNELS), "uint8", "x")
    w = te.placeholder((3, 3, CHANNELS), "int8", "w")
    dy, dx = te.reduce_axis((0, 3), "dy"), te.reduce_axis((0, 3), "dx")
    padded = te.compute((HEIGHT + 2, WIDTH + 2, CHANNELS), lambda y, z, c: te.if_then_else(
        te.all(y >= 1, y <= HEIGHT, z >= 1, z <= WIDTH), x[y - 1, z - 1, c], te.const(0, "uint8")), "padded")  # fmt: skip
    total = te.compute((HEIGHT, WIDTH, CHANNELS), lambda y, z, c: te.sum(
        padded[y + dy, z + dx, c].astype("int32") * w[dy, dx, c].astype("int32"), [dy, dx]), "total")  # fmt: skip
    return by_pixel(te.create_prim_func([x, w, requantized(total, 7)]))


def first():
    """Returns the first convolution: 10 x 4 with strides of 2 on the padded spectrogram of 60 x 14."""
    x, w = te.placeholder((60, 14), "uint8", "x"), te.placeholder((10, 4, CHANNELS), "int8", "w")
    dy, dx = te.reduce_axis((0, 10), "dy"), te.reduce_axis((0, 4), "dx")
    total = te.compute((HEIGHT, WIDTH, CHANNELS), lambda y, z, c: te.sum(
        x[y * 2 + dy, z * 2 + dx].astype("int32") * w[dy, dx, c].astype("int32"), [dy, dx]), "total")  # fmt: skip
    return by_pixel(te.create_prim_func([x, w, requantized(total, 9)]))


def classifier():
    """Returns the mean over the image and the product with the weights of the words."""
    x, w = te.placeholder((HEIGHT * WIDTH, CHANNELS), "uint8", "x"), te.placeholder((WORDS, CHANNELS), "int8", "w")
    i, k = te.reduce_axis((0, HEIGHT * WIDTH), "i"), te.reduce_axis((0, CHANNELS), "k")
    sums = te.compute((CHANNELS,), lambda c: te.sum(x[i, c].astype("int32"), i), "sums")
    scores = te.compute((WORDS,), lambda o: te.sum(sums[k] * w[o, k].astype("int32"), k), "scores")
    return tw.Schedule(te.create_prim_func([x, w, scores]))


LAYERS = {"first": first, "depthwise": depthwise, "pointwise": pointwise, "classifier": classifier}
ORDER = ["first", *["depthwise", "pointwise"] * BLOCKS, "classifier"]


def weights() -> list[np.ndarray]:
    """Returns weights for each layer: random ones stand for trained ones."""
    rng, out = np.random.default_rng(0), []
    for name in ORDER:
        shape = {"first": (10, 4, CHANNELS), "depthwise": (3, 3, CHANNELS), "pointwise": (CHANNELS, CHANNELS)}
        out.append(rng.integers(-90, 128, shape.get(name, (WORDS, CHANNELS))).astype("int8"))
    return out


def reference(x: np.ndarray) -> np.ndarray:
    """Returns the scores that NumPy computes."""
    for name, w in zip(ORDER, weights(), strict=True):
        v, w = x.astype("int32"), w.astype("int32")
        if name == "first":
            views = np.lib.stride_tricks.sliding_window_view(v, (10, 4))[::2, ::2][:HEIGHT, :WIDTH]
            x = np.clip(np.einsum("yzab,abc->yzc", views, w) >> 9, 0, 255)
        elif name == "depthwise":
            p = np.pad(v.reshape(HEIGHT, WIDTH, CHANNELS), ((1, 1), (1, 1), (0, 0)))
            total = sum(p[a : a + HEIGHT, b : b + WIDTH] * w[a, b] for a in range(3) for b in range(3))
            x = np.clip(total >> 7, 0, 255)
        elif name == "pointwise":
            x = np.clip(v.reshape(-1, CHANNELS) @ w.T >> 9, 0, 255)
        else:
            x = w @ v.reshape(-1, CHANNELS).sum(0)
    return x


MAIN = r"""
#include <stdint.h>
#include <stdio.h>
#include "network.h"
#include "weights.h"
static uint8_t one[HEIGHT * WIDTH * CHANNELS], two[HEIGHT * WIDTH * CHANNELS];
static int32_t scores[WORDS];
#include "timer.h"
#define LAYER(name, call) \
  do { start(); int32_t code = call; unsigned long cycles = CYCLES; \
       printf("%-12s %9lu cycles\n", name, cycles); total += cycles; if (code) return 1; } while (0)
int main(void) {
  unsigned long total = 0;
CALLS
  printf("%-12s %9lu cycles\nscores", "all", total);
  for (int i = 0; i < WORDS; ++i) printf(" %ld", (long)scores[i]);
  printf("\n");
  return 0;
}
"""


def write(folder: Path) -> None:
    """Writes network.c and network.h, weights.h and main.c."""
    modules = {name: make().func for name, make in LAYERS.items()}
    tw.codegen.compile(modules, TARGET).export(folder / "network.c")
    lines = [f"enum {{ HEIGHT = {HEIGHT}, WIDTH = {WIDTH}, CHANNELS = {CHANNELS}, WORDS = {WORDS} }};"]
    arrays = {f"w{n}": w for n, w in enumerate(weights())}
    for name, array in {"input": spectrogram(), **arrays}.items():
        kind = f"{array.dtype}_t"
        lines.append(f"static const {kind} {name}[{array.size}] = {{{', '.join(map(str, array.ravel().tolist()))}}};")
    (folder / "weights.h").write_text("\n".join(lines) + "\n")
    calls, source = [], "input"
    for n, name in enumerate(ORDER):
        to = "scores" if name == "classifier" else "one" if n % 2 == 0 else "two"
        calls.append(f'  LAYER("{name}", {name}({source}, w{n}, {to}));')
        source = to
    (folder / "main.c").write_text(MAIN.replace("CALLS", "\n".join(calls)))


def spectrogram() -> np.ndarray:
    """Returns an input with its zeros around it."""
    x = np.zeros((60, 14), "uint8")
    x[5:54, 2:12] = np.random.default_rng(1).integers(0, 256, (49, 10))
    return x


def run(folder: Path) -> str:
    """Returns what the program prints in QEMU, after the sizes of the network's own objects."""
    text, data, bss = sizes_of(folder, "network")
    flash = text + sum(w.nbytes for w in weights())
    ram = data + bss + 2 * HEIGHT * WIDTH * CHANNELS + 4 * WORDS
    workspace = re.search(r"WORKSPACE_BYTES (\d+)", (folder / "network.c").read_text())
    head = f"flash {flash} bytes (kernels {text}, weights {flash - text}), RAM {ram} bytes (workspace {workspace[1]})\n"
    return head + run_on_board(folder, ["network"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write(folder)
    print(f"{folder}: network.c, network.h, weights.h, main.c")
    if missing_tools():
        print(f"not run: {', '.join(missing_tools())} is not installed")
        return
    print(run(folder), end="")
    print(f"NumPy  {' '.join(map(str, reference(spectrogram()).tolist()))}")


if __name__ == "__main__":
    main()
