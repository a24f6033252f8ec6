"""The innermost loop is found in machine code, and llvm-mca reads it."""

from __future__ import annotations

import shutil

import pytest

import tilewright as tw
from tilewright.driver import BuildError, stages
from tilewright.driver.stages import innermost_loop, throughput_report

NEST = """
f:
	xorl	%eax, %eax
.LBB0_1:
	xorl	%ecx, %ecx
.LBB0_2:                                # =>This Inner Loop Header: Depth=2
	.p2align 4
	vmovups	(%rdi), %ymm0
	vfmadd231ps	(%rsi), %ymm1, %ymm0   # ymm0 = (ymm1 * mem) + ymm0
	addq	$8, %rcx
	jne	.LBB0_2
.LBB0_3:
	addq	$1, %rdx
	jne	.LBB0_3
	addq	$1, %rax
	jne	.LBB0_1
	retq
"""


def test_the_loop_with_arithmetic_is_found():
    assert [line.split()[0] for line in innermost_loop(NEST)] == ["vmovups", "vfmadd231ps", "addq", "jne"]
    assert innermost_loop("f:\n\tretq\n") == []


def test_what_is_missing_is_said(monkeypatch):
    with pytest.raises(BuildError, match="no loop to analyse" if shutil.which("llvm-mca") else "not installed"):
        throughput_report("f:\n\tretq\n", "skylake", "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(stages.shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match="llvm-mca is not installed"):
        throughput_report(NEST, "skylake", "x86_64-unknown-linux-gnu")


@pytest.mark.skipif(not shutil.which("llvm-mca"), reason="needs llvm-mca")
def test_a_product_is_analysed():
    code = tw.build("matmul:M=17,N=32,K=64", "llvm -mcpu=skylake -num-cores=1").get_source("asm")
    text = throughput_report(code, "skylake", "x86_64-unknown-linux-gnu")
    assert "vfmadd" in text and "Block RThroughput" in text
    with pytest.raises(BuildError, match="-mcpu=pentium9"):
        throughput_report(code, "pentium9", "x86_64-unknown-linux-gnu")
