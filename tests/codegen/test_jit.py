"""From IR text to machine code, and what is refused on the way."""

import ctypes
import gc

import pytest

from tilewright.codegen.llvm.jit import JITError, load, optimize_and_compile, undefined_symbols
from tilewright.codegen.machine.target import Target

NATIVE = Target("native")
ADD = "define i32 @add(i32 %a, i32 %b) {\n  %c = add i32 %a, %b\n  ret i32 %c\n}\n"
FMA = """
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
define void @step(ptr %a, ptr %b) #0 {
  %x = load <16 x float>, ptr %a, align 4
  %y = load <16 x float>, ptr %b, align 4
  %z = call <16 x float> @llvm.fma.v16f32(<16 x float> %x, <16 x float> %y, <16 x float> %x)
  store <16 x float> %z, ptr %b, align 4
  ret void
}
"""


def test_compile_load_call():
    loaded = load(optimize_and_compile(ADD, NATIVE).object, ["add"])
    add = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(loaded.address("add"))
    assert add(16, 17) == 33
    with pytest.raises(KeyError):
        loaded.address("sub")


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_levels(opt_level):
    assert "add" in optimize_and_compile(ADD, NATIVE, opt_level).asm()


def test_imports_and_what_is_missing():
    text = "declare i32 @given(i32)\ndefine i32 @f(i32 %x) {\n  %y = call i32 @given(i32 %x)\n  ret i32 %y\n}\n"
    code = optimize_and_compile(text, NATIVE).object
    assert undefined_symbols(code) == ["given"]
    with pytest.raises(JITError, match="the code calls given, which is neither in this process nor imported"):
        load(code, ["f"])
    given = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(lambda x: x + 7)
    loaded = load(code, ["f"], {"given": ctypes.cast(given, ctypes.c_void_p).value})
    assert ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address("f"))(6) == 13


def test_symbols_of_the_process():
    text = "declare double @cos(double)\ndefine double @f(double %x) {\n  %y = call double @cos(double %x)\n  ret double %y\n}\n"
    loaded = load(optimize_and_compile(text, NATIVE).object, ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("f"))(0.0) == 1.0


@pytest.mark.parametrize(
    "text, message",
    [
        ("define i32 @f() {\n  ret i64 0\n}", r"value doesn't match function result type[\s\S]*2:   ret i64 0"),
        ("define void @f() {\n  br label %nowhere\n}", "nowhere"),
        ("define i32 @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 2\n  br label %b\nb:\n"
         "  ret i32 %x\n}", "does not verify: .*does not dominate"),
    ],
)  # fmt: skip
def test_broken_ir_is_an_error_and_no_crash(text, message):
    with pytest.raises(JITError, match=message):
        optimize_and_compile(text, NATIVE)


def with_attributes(target):
    return f"{FMA}attributes #0 = {{ {target.llvm_attributes} }}\n"


def test_vectors_of_the_target():
    wide = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512")
    narrow = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    assert "zmm" in optimize_and_compile(with_attributes(wide), wide).asm()
    asm = optimize_and_compile(with_attributes(narrow), narrow).asm()
    assert "ymm" in asm and "vfmadd" in asm and "zmm" not in asm


def test_cross_compilation():
    arm = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -mattr=+neon")
    code = optimize_and_compile(FMA, arm)
    assert "fmla" in code.asm()
    assert code.object[:4] == b"\x7fELF" and code.object[18] == 183  # EM_AARCH64


def test_linking_and_options():
    user = "declare i32 @add(i32, i32)\ndefine i32 @twice(i32 %x) {\n  %y = call i32 @add(i32 %x, i32 %x)\n  ret i32 %y\n}\n"
    code = optimize_and_compile(user, NATIVE, link=(ADD,))
    assert undefined_symbols(code.object) == []
    assert "@add" in code.optimized_ll() and "@twice" in code.optimized_ll()


def test_code_is_unloaded():
    code = optimize_and_compile(ADD, NATIVE).object

    def mappings():
        with open("/proc/self/maps") as f:
            return sum(1 for _ in f)

    for _ in range(3):
        load(code, ["add"])
    gc.collect()
    before = mappings()
    for _ in range(40):
        load(code, ["add"])
    gc.collect()
    assert mappings() <= before + 4


def test_a_module_for_another_machine_says_so(scale_module):
    other = "aarch64" if NATIVE.arch == "x86_64" else "x86_64"
    module = scale_module(f"llvm -mtriple={other}-linux-gnu")
    assert module.get_source("asm")
    with pytest.raises(JITError, match=f"this machine cannot run .it lacks {other} processor"):
        module["scale"]


def test_sources(scale_module):
    module = scale_module()
    assert "i32 @scale(" in module.get_source("ll")
    assert "scale:" in module.get_source("asm")
    with pytest.raises(ValueError, match="no source 'wasm'; there are"):
        module.get_source("wasm")
    with pytest.raises(KeyError, match="no function 'f' in this module"):
        module["f"]


def test_a_conversion_whose_minimum_is_zero_compiles_without_optimization():
    text = """
define i32 @f(ptr noalias readonly %a1, ptr noalias %a2) nounwind {
  %v1 = getelementptr float, ptr %a1, i64 9
  %v2 = load float, ptr %v1, align 4
  %v9 = fptoui float %v2 to i8
  %v10 = icmp ult i8 %v9, 0
  %v11 = select i1 %v10, i8 %v9, i8 0
  %v12 = getelementptr float, ptr %a1, i64 6
  %v13 = load float, ptr %v12, align 4
  %v14 = fptosi float %v13 to i8
  %v15 = load float, ptr %a1, align 4
  %v16 = fptosi float %v15 to i8
  %v17 = sub i8 %v14, %v16
  %v18 = icmp ult i8 %v11, %v17
  %v19 = select i1 %v18, i8 %v11, i8 %v17
  store i8 %v19, ptr %a2, align 1
  ret i32 0
}
"""
    for target in (NATIVE, Target("llvm -mcpu=x86-64-v4")):
        assert "f:" in optimize_and_compile(text, target, 0, cache=False).asm()
