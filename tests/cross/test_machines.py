"""Ten kernels on every machine whose tools are installed; ``python -m tests.cross`` runs all of te.ops' kernels there."""

import pytest

from .kept_words import KeptWords
from .kernel_on_machine import words_of
from .machines import DEVICE_TEXTS, MACHINES
from .table import table
from .ten_kernels import ten_kernels


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_ten_kernels(name):
    machine = MACHINES[name]
    if machine.missing:
        pytest.skip(f"{machine.missing} is not installed")
    kernels = ten_kernels()
    words = words_of(list(kernels.values()), machine, machine.suffix in (".o", *DEVICE_TEXTS))
    lacks = {"gather": "refused: WGSL has no int64: the elements of in1"} if name == "webgpu" else {}
    assert dict(zip(kernels, words, strict=True)) == {**dict.fromkeys(kernels, "equal"), **lacks}


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    kept = KeptWords.of(tmp_path / "words")
    kept.keep("c", "matmul 1", "failed: code 1")
    kept.keep("c", "matmul 1", "equal")
    with kept.file.open("a") as out:
        out.write('["c", "conv 1", "eq')  # the machine went down
    again = KeptWords.of(kept.file)
    assert again.words == {("c", "matmul 1"): "equal"}
    row = table(again.words, {"matmul": "matmul 1", "conv": "conv 1"}).splitlines()
    assert "| c | this machine | equal | – |" in row or "gcc is not installed" in "".join(row)
    assert KeptWords.of(kept.file, fresh=True).words == {}
