"""This module writes real architectures with seeded random weights as ONNX files.

    python benchmarks/model_zoo.py FOLDER [NAME ...]

It needs torch, torchvision, transformers, onnx and onnxscript. Each file has its weights inside; beside ``NAME.onnx``
lies ``NAME.npz`` with the inputs and with what PyTorch computes for them.
"""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20261122
"""The seed of all weights and inputs."""


def _image(size: int = 224) -> tuple[Any, ...]:
    import torch

    return (torch.randn(1, 3, size, size),)


def _tokens(length: int, vocabulary: int = 30000) -> tuple[Any, ...]:
    import torch

    return (torch.randint(0, vocabulary, (1, length)),)


def _vision(name: str) -> Callable[[], tuple[Any, tuple[Any, ...]]]:
    def make() -> tuple[Any, tuple[Any, ...]]:
        from torchvision import models

        return _spread(getattr(models, name)(weights=None)), _image()

    return make


def _spread(model: Any) -> Any:
    """Returns the model with batch norms whose statistics are not the identity."""
    import torch

    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
            part.weight.data.uniform_(0.5, 1.5)
            part.bias.data.normal_(0, 0.1)
    return model


def _vit() -> tuple[Any, tuple[Any, ...]]:
    from torchvision import models

    model = models.vit_b_16(weights=None)
    model.heads.head.weight.data.normal_(0, 0.02)  # torchvision begins with zeros, with which every result is zero
    return model, _image()


def _bert() -> tuple[Any, tuple[Any, ...]]:
    from transformers import BertConfig, BertModel

    return _hidden(BertModel(BertConfig(attn_implementation="eager"), add_pooling_layer=False)), _tokens(128)


def _distilbert() -> tuple[Any, tuple[Any, ...]]:
    from transformers import DistilBertConfig, DistilBertModel

    return _hidden(DistilBertModel(DistilBertConfig(attn_implementation="eager"))), _tokens(128)


def _hidden(model: Any) -> Any:
    """Returns a module from token numbers to the last hidden state."""
    import torch

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any) -> Any:
            return self.model(tokens, return_dict=False)[0]

    return Hidden()


class _Decoder:
    """A decoder makes modules that are called with a cache of keys and values as plain tensors."""

    def __init__(self, model: Any, layers: int, heads: int, width: int) -> None:
        self.model, self.layers, self.heads, self.width = model, layers, heads, width

    def prefill(self) -> Any:
        import torch

        outer = self

        class Prefill(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = outer.model

            def forward(self, tokens: Any) -> Any:
                return self.model(tokens, use_cache=False, return_dict=False)[0]

        return Prefill()

    def step(self, length: int) -> tuple[Any, tuple[Any, ...]]:
        import torch
        from transformers import DynamicCache

        outer = self

        class Step(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = outer.model

            def forward(self, token: Any, *cache: Any) -> Any:
                past = DynamicCache()
                for layer in range(outer.layers):
                    past.update(cache[2 * layer], cache[2 * layer + 1], layer)
                position = torch.full((1, 1), length)
                logits = self.model(token, past_key_values=past, position_ids=position, return_dict=False)[0]
                out = [logits]
                for entry in past.layers:
                    out += [entry.keys, entry.values]
                return tuple(out)

        cache = tuple(torch.randn(1, self.heads, length, self.width) for _ in range(2 * self.layers))
        return Step(), (torch.randint(0, 30000, (1, 1)), *cache)


def _gpt2() -> _Decoder:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _Decoder(GPT2LMHeadModel(GPT2Config(attn_implementation="eager")), 12, 12, 64)


def _gpt2_prefill() -> tuple[Any, tuple[Any, ...]]:
    return _gpt2().prefill(), _tokens(64)


def _gpt2_decode() -> tuple[Any, tuple[Any, ...]]:
    return _gpt2().step(512)


def _llama() -> tuple[Any, tuple[Any, ...]]:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=4,
        vocab_size=32000, attn_implementation="eager",
    )  # fmt: skip
    return _Decoder(LlamaModel(config), 2, 4, 64).prefill(), _tokens(64)


def _lstm() -> tuple[Any, tuple[Any, ...]]:
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(10000, 128)
            self.lstm = torch.nn.LSTM(128, 256, num_layers=2, batch_first=True)
            self.out = torch.nn.Linear(256, 10)

        def forward(self, tokens: Any) -> Any:
            return self.out(self.lstm(self.embed(tokens))[0][:, -1])

    return Classifier(), _tokens(64, 10000)


def _unet() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    def double(a: int, b: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
            nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
        )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (32, 64, 128, 256)
            self.down = nn.ModuleList([double(a, b) for a, b in zip((3, *widths), (*widths, 512), strict=True)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths)])
            self.join = nn.ModuleList([double(2 * w, w) for w in reversed(widths)])
            self.out = nn.Conv2d(32, 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for block in self.down:
                if kept:
                    x = nn.functional.max_pool2d(x, 2)
                x = block(x)
                kept.append(x)
            kept.pop()
            for up, join in zip(self.up, self.join, strict=True):
                x = join(torch.cat([kept.pop(), up(x)], 1))
            return self.out(x)

    return _spread(UNet()), _image(256)


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "bert_base_128": _bert,
    "convnext_tiny": _vision("convnext_tiny"),
    "densenet121": _vision("densenet121"),
    "distilbert_128": _distilbert,
    "efficientnet_b0": _vision("efficientnet_b0"),
    "gpt2_decode_512": _gpt2_decode,
    "gpt2_prefill_64": _gpt2_prefill,
    "llama_2l_64": _llama,
    "lstm_classifier_64": _lstm,
    "mobilenet_v2": _vision("mobilenet_v2"),
    "mobilenet_v3_large": _vision("mobilenet_v3_large"),
    "resnet18": _vision("resnet18"),
    "resnet50": _vision("resnet50"),
    "squeezenet1_1": _vision("squeezenet1_1"),
    "swin_t": _vision("swin_t"),
    "unet_256": _unet,
    "vit_b_16": _vit,
}


def write(name: str, folder: Path) -> None:
    """Writes one model, and the inputs and outputs of one run."""
    import torch

    # This module registers detection operators of torchvision's compiled library, which may be built for another torch.
    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("_meta_registrations"))
    torch.manual_seed(SEED)
    model, inputs = MODELS[name]()
    model.eval()
    with torch.no_grad():
        outputs = model(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    names = [f"x{n}" for n in range(len(inputs))]
    program = torch.onnx.export(
        model,
        inputs,
        input_names=names,
        output_names=[f"y{n}" for n in range(len(outputs))],
        dynamo=True,
        verbose=False,
    )
    program.save(str(folder / f"{name}.onnx"), external_data=False)
    arrays = {n: x.numpy() for n, x in zip(names, inputs, strict=True)}
    np.savez(folder / f"{name}.npz", **arrays, **{f"y{n}": y.detach().numpy() for n, y in enumerate(outputs)})


def main() -> None:
    """Writes the models that the command line names, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], metavar="NAME")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or MODELS:
        write(name, options.folder)
        print(f"{name}: {(options.folder / f'{name}.onnx').stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
