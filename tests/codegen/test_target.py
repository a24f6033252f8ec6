"""Targets: text in and out, what the machine can do, errors that name the nearest word."""

import pickle

import numpy as np
import pytest

from tilewright.codegen import compile
from tilewright.codegen.llvm.jit import JITError
from tilewright.codegen.machine.cpu import available_cores, host
from tilewright.codegen.machine.target import Target
from tilewright.codegen.machine.target_text import TargetError
from tilewright.tir.parser import parse


def test_native_is_this_machine():
    t = Target("native")
    assert t.kind == "native"
    assert t.mcpu == host().cpu
    assert t.missing_here() == []
    assert t.caches.l1 >= 4096
    assert f"+{sorted(t.describe()['features'])[0]}" in t.llvm_features


@pytest.mark.parametrize(
    "text",
    [
        "native -num-cores=1",
        "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake -mattr=+avx2,+fma -num-cores=2",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+neon -num-cores=7",
        "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server -vector-width=256 -num-cores=13",
        "c -mtriple=x86_64-linux-gnu -mcpu=generic -num-cores=1",
    ],
)
def test_text_round_trips(text):
    t = Target(text)
    assert str(t) == text
    assert Target(str(t)) == t and hash(Target(str(t))) == hash(t)
    assert pickle.loads(pickle.dumps(t)) == t
    assert Target(t) == t
    assert Target(str(t)).key == t.key


def test_mapping_and_keywords():
    want = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=3")
    assert Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell", "num-cores": 3}) == want
    assert Target(kind="llvm", mtriple="x86_64-linux-gnu", mcpu="haswell", num_cores=3) == want
    assert Target(want, num_cores=1) == want.with_(num_cores=1)
    assert want.with_(num_cores=1).num_cores == 1


@pytest.mark.parametrize(
    "text, bits, registers, fma, vnni",
    [
        ("llvm -mtriple=x86_64-linux-gnu", 128, 16, False, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=sandybridge", 256, 16, False, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake", 256, 16, True, False),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx2", 256, 16, False, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512", 512, 32, True, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5", 512, 32, True, True),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 -mattr=-avx512f", 256, 16, True, False),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=znver5 -vector-width=256", 256, 32, True, True),
        ("llvm -mtriple=aarch64-linux-gnu", 128, 32, True, False),
    ],
)
def test_what_the_machine_can_do(text, bits, registers, fma, vnni):
    t = Target(text)
    assert (t.vector_bits, t.num_vector_registers, t.has_fma, t.has_vnni) == (bits, registers, fma, vnni)
    assert t.vector_lanes("float32") == bits // 32
    assert t.vector_lanes("int8") == t.vector_lanes("bool") == bits // 8
    assert t.vector_lanes("float64x4") == bits // 64


def test_llvm_is_told_everything():
    t = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -mattr=-avx512bw")
    assert t.llvm_attributes == (
        '"target-cpu"="skylake-avx512" "target-features"="-avx512bw" "prefer-vector-width"="512"'
    )
    assert all(f[0] in "+-" for f in Target("native").features)


def test_thread_count(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS", raising=False)
    assert Target("native").num_cores == available_cores()
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "13")
    assert Target("native").num_cores == 13
    assert Target("native -num-cores=7").num_cores == 7
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "many")
    with pytest.raises(TargetError, match="TILEWRIGHT_NUM_THREADS=many: a whole number"):
        Target("native")


@pytest.mark.parametrize(
    "text, foreign",
    [
        ("native", False),
        ("c -openmp", False),
        ("llvm", False),
        ("llvm -mcpu=x86-64-v3", False),  # a level that many machines have
        ("llvm -mcpu={host}", False),
        ("llvm -mcpu=nehalem", True),
        ("llvm -mtriple=x86_64-pc-windows-msvc", True),
        ("llvm -mtriple=x86_64-apple-darwin", True),
        ("llvm -mtriple=riscv64-linux-gnu", True),
        ("llvm -mtriple=wasm32-unknown-unknown", True),
    ],
)
def test_thread_count_of_another_machine(monkeypatch, text, foreign):
    if Target("native").arch != "x86_64" or "linux" not in Target("native").triple:
        pytest.skip("written for x86-64 and Linux")
    monkeypatch.setattr("tilewright.codegen.machine.described_targets.available_cores", lambda: 12)
    monkeypatch.delenv("TILEWRIGHT_NUM_THREADS", raising=False)
    text = text.format(host=host().cpu)
    assert Target(text).num_cores == (1 if foreign else 12)
    assert Target(f"{text} -num-cores=3").num_cores == 3
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "5")
    assert Target(text).num_cores == 5


@pytest.mark.parametrize("word", ["nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa", "spirv64-unknown-unknown", "spirv-unknown-vulkan",
                                  "bpf", "foo-bar-baz", "s390x-linux-gnu", "aarch64_be-linux-gnu", "armv7eb-none-eabi", "avr"])  # fmt: skip
def test_processors_without_code(word):
    with pytest.raises(
        TargetError, match=f"-mtriple={word}: no machine code is generated for {word.split('-')[0]}; there are"
    ):
        Target(f"llvm -mtriple={word}")


@pytest.mark.parametrize("triple", ["wasm32-unknown-unknown", "thumbv7em-none-eabi", "riscv64-linux-gnu", "i686-linux-gnu",
                                    "armv7-linux-gnueabihf", "powerpc64le-linux-gnu", "x86_64-pc-windows-msvc", "arm64-apple-macosx"])  # fmt: skip
def test_other_processors_get_objects_and_nothing_runs(triple, tmp_path, capfd):
    """Without threads and large scratch an object needs no runtime; with them, 64 bits and POSIX are needed."""
    target = Target(f"llvm -mtriple={triple}")
    module = compile(stages(7), target)
    for ending in ("o", "s", "ll", "c"):
        module.export(tmp_path / f"k.{ending}")
        assert (tmp_path / f"k.{ending}").stat().st_size > 100 and not capfd.readouterr().err
    first = {"arm64-apple-macosx": b"\xcf\xfa\xed\xfe", "x86_64-pc-windows-msvc": b"\x64\x86"}.get(triple, b"")
    assert (tmp_path / "k.o").read_bytes().startswith(first)  # Mach-O, COFF
    with pytest.raises(JITError, match="which this machine cannot run"):
        module(np.zeros(7, "float32"), np.zeros(7, "float32"))
    runs = triple in ("riscv64-linux-gnu", "powerpc64le-linux-gnu", "arm64-apple-macosx")
    scratch = runs or triple.startswith("wasm32")  # a module's own memory grows
    for func, options, words in (
        (stages(300_000), {}, "scratch memory that does not fit the stack"),
        (stages(7, "T.parallel"), {"num_cores": 2}, "threads"),
    ):
        if runs or (scratch and not options):
            compile(func, target.with_(**options))
            continue
        with pytest.raises(
            TargetError, match=f"kernel uses {words}, which the runtime offers on POSIX .*, not for {triple}"
        ):
            compile(func, target.with_(**options))


def stages(n, kind="range"):
    """B = A[::-1] * 2 + 1 by way of scratch memory."""
    return parse(f"""
@T.prim_func
def kernel(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    S = T.alloc_buffer(({n},), "float32")
    for i in range({n}):
        with T.block("S"):
            v = T.axis.spatial({n}, i)
            S[v] = A[v] * T.float32(2)
    for i in {kind}({n}):
        with T.block("B"):
            v = T.axis.spatial({n}, i)
            B[v] = S[{n} - 1 - v] + T.float32(1)
""")


def test_keys_tell_machines_apart():
    texts = ["native -num-cores=1", "native -num-cores=2", "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1",
             "llvm -mtriple=x86_64-linux-gnu -mcpu=znver1 -num-cores=1"]  # fmt: skip
    assert len({Target(t).key for t in texts}) == len(texts)


def test_this_machine_less_a_feature_and_what_rests_on_it():
    here = Target("native -num-cores=1")
    if here.arch != "x86_64" or not here.has("avx2"):
        pytest.skip("this machine has no AVX2 to take away")
    less = Target("native -mattr=-avx2 -num-cores=1")
    assert less.vector_bits <= 256 and not any(less.has(f) for f in ("avx2", "avx512f", "avxvnni", "avx512bf16"))
    assert less.has("avx") and "-avx2" in less.llvm_features and less.key != here.key and not less.missing_here()


def test_immutable():
    with pytest.raises(AttributeError, match="immutable"):
        Target("native").num_cores = 3


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "an empty target"),
        ("nativ", "no such kind; did you mean native?"),
        ("vulkan", "no such kind; there are"),
        ("llvm -mcp=skylake", "no option -mcp; did you mean -mcpu?"),
        ("llvm -mcpu", "option -mcpu has no value"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=skylaek", "did you mean skylake?"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=skylake", "not a CPU of aarch64"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=avx2", r"'avx2' needs a sign: \+avx2 or -avx2"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx3", "not a feature of x86_64"),
        ("native -num-cores=0", "a whole number of at least 1"),
        ("native -num-cores=two", "a whole number of at least 1"),
        ("native -mcpu=skylake", "native takes no -mcpu"),
        ("native -mattr=+avx2", r"native takes no -mattr=\+avx2: .* -mattr=-avx2 would take it away"),
        ("native -mattr=-avx22", "-mattr=-avx22: not a feature"),
        (
            "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake -vector-width=512",
            "-vector-width=512: this target has 128, 256",
        ),
        ("llvm skylake", "'skylake' is not an option"),
        ("llvm 'x", "No closing quotation"),
        (7, "a target is text"),
    ],
)
def test_errors(text, message):
    with pytest.raises(TargetError, match=message):
        Target(text)


def test_what_is_missing_here():
    other = "aarch64" if Target("native").arch == "x86_64" else "x86_64"
    assert Target(f"llvm -mtriple={other}-linux-gnu").missing_here() == [f"{other} processor"]
