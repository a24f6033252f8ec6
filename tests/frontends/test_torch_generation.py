"""Models of Hugging Face generate tokens through torch.compile; the oracle is eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")
try:
    import transformers
    from transformers import GPT2LMHeadModel  # noqa: F401  models are imported when they are asked for
except ImportError as missing:
    pytest.skip(f"needs transformers: {missing}", allow_module_level=True)

import tilewright as tw  # noqa: E402
from tilewright.doors import compile_backend  # noqa: E402

SIZES = {
    "vocab_size": 199, "max_position_embeddings": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
"""Attention has fewer heads of keys and values than of queries."""

MODELS = {
    "GPT2": {"vocab_size": 199, "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": None},
    "Llama": SIZES,
    "Qwen2": SIZES,
}  # fmt: skip


def model_of(name):
    """Returns a small model with random weights, the same each time."""
    torch.manual_seed(0)
    kind = "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    model = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**MODELS[name])).eval()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    return model


@pytest.fixture
def backend(monkeypatch):
    """The backend, which keeps a list ``graphs`` of those that it compiles, and ``built`` of the libraries."""
    torch._dynamo.reset()
    compile_backend.forget()
    init = compile_backend.CompiledGraph.__init__

    def counted(gm, inputs, **options):
        counted.graphs.append(gm)
        return tw.torch.backend(gm, inputs, options={"strict": True}, **options)

    def noted(self, *args):
        counted.built.append(self)
        init(self, *args)

    counted.graphs, counted.built = [], []
    monkeypatch.setattr(compile_backend.CompiledGraph, "__init__", noted)
    yield counted
    torch._dynamo.reset()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_are_those_of_eager(backend, name, cache):
    model = model_of(name)
    ids = torch.randint(1, 199, (2, 7))
    more = {"cache_implementation": "static"} if cache == "static" else {}
    mask = torch.ones_like(ids)
    mask[0, :3] = 0  # a shorter prompt, filled from the left

    def generated():
        return model.generate(
            ids, attention_mask=mask, max_new_tokens=12, do_sample=False, disable_compile=True, **more
        )

    want = generated()
    model.forward = torch.compile(model.forward, backend=backend)
    assert torch.equal(generated(), want)
    assert len(backend.graphs) <= 3 and len(backend.built) == len(backend.graphs)
    assert torch.equal(generated(), want)
    assert len(backend.graphs) <= 3 and len(backend.built) == len(backend.graphs)


def test_a_step_that_generate_compiles_is_built_once(backend):
    """Its cache has a fixed address and is written to, so it is an input and not a constant."""
    model, ids = model_of("Llama"), torch.tensor([[5, 3, 8, 1]])
    more = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": "static"}
    want = model.generate(ids, disable_compile=True, **more)
    how = transformers.generation.configuration_utils.CompileConfig(backend=backend, mode=None)
    how._compile_all_devices = True
    assert torch.equal(model.generate(ids, compile_config=how, **more), want)
    (library,) = backend.built
    assert len(library.held) >= len(list(model.parameters())) - 1  # the tied or unused one aside
