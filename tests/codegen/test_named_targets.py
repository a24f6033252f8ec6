"""Names that stand for targets: each is one, options are added to it, and others are refused with near names."""

import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target
from tilewright.codegen.machine.named_targets import NAMED_TARGETS
from tilewright.codegen.machine.target_text import TargetError


@pytest.mark.parametrize("name", NAMED_TARGETS)
def test_each_is_the_target_that_it_stands_for(name):
    assert Target(name) == Target(NAMED_TARGETS[name]) == Target(str(Target(name)))


@pytest.mark.parametrize(("name", "facts"), [
    ("wasm", {"arch": "wasm32", "vector_bits": 128}),
    ("riscv64", {"arch": "riscv64"}),
    ("cortex-m7", {"kind": "c", "is_freestanding": True, "vector_bits": 32}),
    ("znver4", {"arch": "x86_64", "vector_bits": 512}),
    ("neoverse-v1", {"arch": "aarch64"}),
    ("apple/m1", {"arch": "aarch64", "num_cores": 8, "mcpu": "apple-m1"}),
    ("raspberry-pi/4b-aarch64", {"mcpu": "cortex-a72", "num_cores": 4}),
    ("aws/cpu/c5.9xlarge", {"mcpu": "skylake-avx512", "num_cores": 18}),
    ("nvidia/geforce-rtx-4090", {"kind": "cuda", "mcpu": "sm_89"}),
    ("nvidia/jetson-orin-nano", {"kind": "cuda", "mcpu": "sm_87"}),
    ("amd/radeon-rx-7900-xtx", {"kind": "rocm", "mcpu": "gfx1100"}),
])  # fmt: skip
def test_facts(name, facts):
    assert {word: getattr(Target(name), word) for word in facts} == facts


def test_options_are_added():
    assert Target("apple/m1 -num-cores=2").num_cores == Target("apple/m1", num_cores=2).num_cores == 2
    assert Target("cortex-a72 -mattr=+dotprod").has("dotprod") and not Target("cortex-a72").has("dotprod")


def test_mappings_have_names_as_their_kind_or_tag():
    wanted = Target("cuda -arch=sm_86")
    assert Target({"tag": "nvidia/geforce-rtx-3090"}) == Target(kind="nvidia/geforce-rtx-3090") == wanted
    assert Target({"tag": "apple/m1", "num-cores": 3}).num_cores == 3
    with pytest.raises(TargetError, match="'apple/m1'.*leave out the kind"):
        Target({"tag": "apple/m1", "kind": "llvm"})
    with pytest.raises(TargetError, match="'apple/m11'.*no such name; did you mean apple/m1"):
        Target({"tag": "apple/m11"})


@pytest.mark.parametrize(("name", "near"), [
    ("nvidia/geforce-rtx-409", "nvidia/geforce-rtx-4090"), ("cortex-m8", "cortex-m85"), ("aarch46", "aarch64"),
    ("skylaek", "skylake"), ("apple/m1-gpu", "apple/m1"), ("amd/instinct-mi300", "amd/instinct-mi300"),
])  # fmt: skip
def test_other_names_are_refused_with_near_ones(name, near):
    with pytest.raises(TargetError, match=f"no such kind; did you mean .*{near}"):
        Target(name)


@pytest.mark.parametrize("name", ["nvidia/geforce-gtx-1080", "nvidia/tesla-m60", "nvidia/nvidia-t4", "nvidia/nvidia-b200",
                                  "nvidia/geforce-rtx-5090", "nvidia/jetson-nano"])  # fmt: skip
def test_devices_of_every_age_have_code(name):
    x = te.placeholder((64, 64), name="X")
    assert f".target {Target(name).mcpu}" in tw.build([x, te.ops.softmax(x)], name).get_source()
