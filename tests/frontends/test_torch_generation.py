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

BOTH = {
    "vocab_size": 199, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": None, "forced_eos_token_id": None,
    "decoder_start_token_id": 2,
}  # fmt: skip
"""Models with an encoder and a decoder."""

MODELS = {
    "GPT2": {"vocab_size": 199, "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": None},
    "Llama": SIZES,
    "Qwen2": SIZES,
    "Mistral": {**SIZES, "sliding_window": 8},
    "Mixtral": {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
}  # fmt: skip

MORE = {
    "Gemma": {**SIZES, "head_dim": 8},
    "Gemma2": {**SIZES, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "Gemma3Text": {
        **SIZES, "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention"],
    },
    "Qwen2Moe": {**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32},
    "Phi": SIZES,
    "Phi3": {**SIZES, "pad_token_id": 0},
    "OPT": {
        "vocab_size": 199, "max_position_embeddings": 128, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "word_embed_proj_dim": 32, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 1,
    },
    "Bloom": {"vocab_size": 199, "hidden_size": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 1},
    "T5": {
        "vocab_size": 199, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0, "pad_token_id": 0,
        "eos_token_id": None,
    },
    "Bart": {**BOTH, "max_position_embeddings": 128},
    "Whisper": {**BOTH, "num_mel_bins": 16, "max_source_positions": 40, "max_target_positions": 64},
}  # fmt: skip
"""Further kinds: windows of attention, experts, positions in other ways, encoders with decoders."""

TESTED = [
    *[(name, cache) for name in MODELS for cache in ("dynamic", "static")],
    *[(name, "dynamic") for name in ("Gemma3Text", "T5", "Whisper")],
    *[(name, "static") for name in ("Gemma", "Gemma2", "Qwen2Moe", "Phi", "Phi3", "OPT", "Bloom", "Bart", "Whisper")],
]


def model_of(name):
    """Returns a small model with random weights, the same each time."""
    torch.manual_seed(0)
    after = {"GPT2": "LMHeadModel"} | dict.fromkeys(("T5", "Bart", "Whisper"), "ForConditionalGeneration")
    kind = getattr(transformers, f"{name.removesuffix('Text')}{after.get(name, 'ForCausalLM')}")
    model = kind(getattr(transformers, f"{name}Config")(**(MODELS | MORE)[name])).eval()
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


@pytest.mark.parametrize(("name", "cache"), TESTED)
def test_tokens_are_those_of_eager(backend, name, cache):
    """Greedy for models of one part; the others, which repeat a token, and those of experts draw tokens by a seed."""
    model = model_of(name)
    ids = torch.randint(2, 199, (2, 7))
    more = {"cache_implementation": "static"} if cache == "static" else {}
    mask = torch.ones_like(ids)
    mask[0, :3] = 0  # a shorter prompt, filled from the left
    given = {"input_ids": ids, "attention_mask": mask}
    if name == "Whisper":
        given = {"input_features": torch.randn(2, 16, 80), "decoder_input_ids": ids}
    drawn = model.config.is_encoder_decoder or "num_experts_per_tok" in (MODELS | MORE)[name]
    how = {"do_sample": True, "top_k": 20, "temperature": 0.9} if drawn else {"do_sample": False}
    generate = transformers.generation.GenerationMixin.generate  # Whisper's own one takes sound apart first

    def generated():
        torch.manual_seed(5)
        return generate(model, **given, max_new_tokens=12, disable_compile=True, **how, **more)

    want = generated()
    model.forward = torch.compile(model.forward, backend=backend)
    assert torch.equal(generated(), want)
    again = name == "T5" and cache == "dynamic"  # from one token on: a library for up to 8 is made again for more
    assert len(backend.graphs) <= 3 and len(backend.built) == len(backend.graphs) + again
    assert torch.equal(generated(), want)
    assert len(backend.graphs) <= 3 and len(backend.built) == len(backend.graphs) + again


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
