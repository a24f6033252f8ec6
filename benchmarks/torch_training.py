"""``python -m benchmarks.torch_training --steps 50``: a convolution net and a transformer train through torch.compile.

The losses are compared with those of eager PyTorch; the largest relative difference is printed, and has to stay below 1e-3.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import nn

import tilewright as tw


class Convolutions(nn.Module):
    """Strided and grouped convolutions, batch normalization, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.middle, self.head = nn.Conv2d(8, 16, 3, padding=1, groups=2), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        return self.head(self.middle(x).relu().mean((2, 3)))


class Words(nn.Module):
    """One causal transformer block over a table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.second = nn.Embedding(11, 16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.table(words)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return self.head(x.mean(1))


NETS = (
    (Convolutions, torch.randn(8, 3, 17, 13, generator=torch.Generator().manual_seed(1))),
    (Words, torch.randint(11, (8, 7), generator=torch.Generator().manual_seed(1))),
)
"""The nets and their inputs."""


def losses(make: type[nn.Module], x: torch.Tensor, steps: int, fast: bool) -> list[float]:
    """Returns the loss before each step."""
    torch.manual_seed(0)
    model = make()
    run = torch.compile(model, backend=tw.torch.backend, options={"strict": True}) if fast else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    out = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(run(x), torch.arange(len(x)) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def main() -> None:
    """Trains both models, and prints how far the losses are from eager's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    steps = parser.parse_args().steps
    bad = False
    for make, x in NETS:
        fast, eager = (losses(make, x, steps, f) for f in (True, False))
        apart = max(abs(a - b) / abs(b) for a, b in zip(fast, eager, strict=True))
        bad = bad or apart > 1e-3
        print(f"{make.__name__}: {steps} steps, loss {eager[0]:.4f} to {fast[-1]:.4f}, apart by {apart:.1e} at most")
    sys.exit(int(bad))


if __name__ == "__main__":
    main()
