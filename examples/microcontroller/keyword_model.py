"""A quantized ONNX model of the size of keyword spotting becomes C for a Cortex-M7, and runs in QEMU.

    python examples/microcontroller/keyword_model.py FOLDER

writes FOLDER/keywords.onnx, keywords.c and keywords.h, and, where arm-none-eabi-gcc and qemu-system-arm are installed, prints
the sizes of flash and RAM, the cycles of one inference, and the scores beside those of ONNX's own evaluator. The network is a
DS-CNN as MLPerf Tiny's: a spectrogram of 49 x 10, a convolution, four depthwise-separable blocks of 64 channels, a mean, a
classifier of 12 words. Weights are seeded random numbers: int8, with a scale for each channel.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import onnx
from board import missing_tools, run_on_board, sizes_of
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw

TARGET = "c -mcpu=cortex-m7"


class Quantized:
    """A model that grows by quantized layers: between them values are int8, as QuantizeLinear makes them."""

    def __init__(self, seed: int) -> None:
        self.rng, self.nodes, self.constants = np.random.default_rng(seed), [], []

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def real(self, x: str, scale: float) -> str:
        """Returns the numbers that int8 numbers stand for."""
        return self.node("DequantizeLinear", x, self.constant(np.float32(scale)), self.constant(np.int8(0)))

    def small(self, x: str, scale: float) -> str:
        """Returns numbers as int8."""
        return self.node("QuantizeLinear", x, self.constant(np.float32(scale)), self.constant(np.int8(0)))

    def weights(self, *shape: int, axis: int = 0) -> str:
        """Returns weights that stand for random numbers, with a scale for each output channel."""
        w = self.rng.normal(0, math.sqrt(2 / math.prod(shape[1:])), shape)
        scale = np.abs(w).reshape(shape[0], -1).max(1).astype("float32") / 127
        narrow = np.rint(w / scale.reshape(-1, *[1] * (len(shape) - 1))).astype("int8")
        zeros = self.constant(np.zeros(shape[0], "int8"))
        return self.node("DequantizeLinear", self.constant(narrow), self.constant(scale), zeros, axis=axis)

    def bias(self, channels: int) -> str:
        return self.constant(self.rng.normal(0, 0.1, channels).astype("float32"))

    def convolution(self, x: str, shape: tuple[int, ...], **attributes: object) -> str:
        """Returns the int8 results of a convolution with a relu; ``x`` is real."""
        y = self.node("Conv", x, self.weights(*shape), self.bias(shape[0]), **attributes)
        return self.real(self.small(self.node("Relu", y), 0.04), 0.04)


def keyword_model(channels: int = 64, blocks: int = 4, words: int = 12) -> onnx.ModelProto:
    """Returns the network; ``input`` is int8 (1, 1, 49, 10) with a scale of 1/32, ``scores`` are int8."""
    q = Quantized(0)
    x = q.convolution(q.real("input", 1 / 32), (channels, 1, 10, 4), strides=[2, 2], pads=[4, 1, 5, 1])
    for _ in range(blocks):
        x = q.convolution(x, (channels, 1, 3, 3), group=channels, pads=[1, 1, 1, 1])
        x = q.convolution(x, (channels, channels, 1, 1))
    x = q.real(q.small(q.node("GlobalAveragePool", x), 0.02), 0.02)
    x = q.node("Flatten", x)
    x = q.node("Gemm", x, q.weights(words, channels), q.bias(words), transB=1)
    q.small(x, 0.05)
    q.nodes[-1].output[0] = "scores"
    graph = helper.make_graph(
        q.nodes, "keywords", [helper.make_tensor_value_info("input", TensorProto.INT8, [1, 1, 49, 10])],
        [helper.make_tensor_value_info("scores", TensorProto.INT8, [1, words])], q.constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def spectrogram() -> np.ndarray:
    return np.random.default_rng(1).integers(-128, 128, (1, 1, 49, 10)).astype("int8")


def expected(model: onnx.ModelProto) -> np.ndarray:
    """Returns the scores that ONNX's own evaluator computes."""
    return ReferenceEvaluator(model).run(None, {"input": spectrogram()})[0]


MAIN = r"""
#include <stdio.h>
#include "keywords.h"
#include "timer.h"
static const int8_t input[] = {INPUT};
static int8_t scores[WORDS];
int main(void) {
  start();
  int32_t code = keywords(input, scores);
  unsigned long cycles = CYCLES;
  printf("code %ld\ncycles %lu\nscores", (long)code, cycles);
  for (unsigned i = 0; i < sizeof scores; ++i) printf(" %d", scores[i]);
  printf("\n");
  return 0;
}
"""


def run(folder: Path, words: int = 12) -> str:
    """Returns the sizes of keywords.c, and what the program prints in QEMU."""
    numbers = ", ".join(map(str, spectrogram().ravel().tolist()))
    (folder / "main.c").write_text(MAIN.replace("INPUT", numbers).replace("WORDS", str(words)))
    text, data, bss = sizes_of(folder, "keywords")
    return f"flash {text + data} bytes, RAM {data + bss} bytes\n" + run_on_board(folder, ["keywords"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(keyword_model(), folder / "keywords.onnx")
    model = tw.build(folder / "keywords.onnx", TARGET)
    print(*[file.name for file in model.export(folder / "keywords.c")], f"{model.constant_bytes} bytes of constants")
    if missing_tools():
        print(f"not run: {', '.join(missing_tools())} is not installed")
        return
    print(run(folder), end="")
    print("onnx", *expected(keyword_model()).ravel().tolist())


if __name__ == "__main__":
    main()
