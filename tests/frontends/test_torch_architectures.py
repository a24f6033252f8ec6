"""Networks of torchvision and transformers, small ones, run through torch.compile; the oracle is eager PyTorch."""

import importlib
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

import tilewright as tw  # noqa: E402
from tilewright.doors.compile_backend import forget  # noqa: E402

nn = torch.nn


def load_torchvision():
    """Import torchvision where it is installed. A wheel for CUDA beside PyTorch for CPUs lacks its own operators, which no
    network here needs: then they are only declared."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")


load_torchvision()


def package(name):
    return pytest.importorskip(name, reason=f"needs the package {name}")


class UNet(nn.Module):
    """Two levels down and up again, with what was before beside what comes back."""

    def __init__(self):
        super().__init__()

        def block(c, d):
            return nn.Sequential(nn.Conv2d(c, d, 3, padding=1), nn.GroupNorm(2, d), nn.SiLU())

        self.first, self.second, self.middle = block(3, 8), block(8, 16), block(16, 16)
        self.up1, self.up2 = nn.ConvTranspose2d(16, 16, 2, 2), nn.Upsample(scale_factor=2)
        self.third, self.fourth, self.head = block(32, 8), block(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.first(x)
        b = self.second(nn.functional.max_pool2d(a, 2))
        c = self.up1(self.middle(nn.functional.avg_pool2d(b, 2)))
        d = self.up2(self.third(torch.cat((b, c), 1)))
        return self.head(self.fourth(torch.cat((a, d), 1)))


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


def resnet():
    return package("torchvision").models.resnet18(num_classes=10), torch.randn(1, 3, 32, 32)


def mobilenet():
    return package("torchvision").models.mobilenet_v2(width_mult=0.25, num_classes=10), torch.randn(1, 3, 32, 32)


def vit():
    t = package("transformers")
    config = t.ViTConfig(image_size=24, patch_size=8, **SMALL)
    return t.ViTModel(config, add_pooling_layer=False), torch.randn(1, 3, 24, 24)


def bert():
    t = package("transformers")
    config = t.BertConfig(vocab_size=61, max_position_embeddings=17, **SMALL)
    return t.BertModel(config), torch.randint(61, (2, 13))


def gpt2():
    t = package("transformers")
    config = t.GPT2Config(vocab_size=61, n_positions=17, n_embd=32, n_layer=2, n_head=2, use_cache=False)
    return t.GPT2LMHeadModel(config), torch.randint(61, (1, 13))


def unet():
    return UNet(), torch.randn(1, 3, 16, 24)


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    forget()
    yield lambda f: torch.compile(f, backend=tw.torch.backend, options={"strict": True})
    torch._dynamo.reset()


@pytest.mark.parametrize("make", [unet, bert, gpt2, vit, mobilenet, resnet], ids=lambda f: f.__name__)
def test_networks_equal_eager(compiled, make):
    torch.manual_seed(0)
    model, x = make()
    model.eval()

    def first(x):
        out = model(x)
        return out if isinstance(out, torch.Tensor) else out[0]

    with torch.no_grad():
        torch.testing.assert_close(compiled(first)(x), first(x), rtol=1e-4, atol=1e-4)
