"""The networks of examples/microcontroller compute what NumPy and ONNX do, on an emulated Cortex-M7 with cycles printed."""

import importlib
import re
import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "microcontroller"
missing = [tool for tool in ("arm-none-eabi-gcc", "qemu-system-arm") if shutil.which(tool) is None]
needs_board = pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def scores_in(text):
    found = re.search(r"scores (.*)", text)
    assert found, text
    return [int(word) for word in found[1].split()]


@needs_board
def test_the_network_runs_on_a_cortex_m7(example, tmp_path):
    network = example("keyword_spotting")
    network.write(tmp_path)
    text = network.run(tmp_path)
    assert scores_in(text) == network.reference(network.spectrogram()).tolist()
    assert re.search(r"flash \d+ bytes .*RAM \d+ bytes \(workspace \d+\)", text)
    assert int(re.search(r"all +(\d+) cycles", text)[1]) > 0


@needs_board
def test_a_model_runs_on_a_cortex_m7(example, tmp_path):
    onnx = pytest.importorskip("onnx")
    import tilewright as tw

    network = example("keyword_model")
    model = network.keyword_model(channels=4, blocks=1, words=5)
    onnx.save(model, tmp_path / "keywords.onnx")
    built = tw.build(tmp_path / "keywords.onnx", network.TARGET)
    built.export(tmp_path / "keywords.c")
    text = network.run(tmp_path, words=5)
    assert scores_in(text) == network.expected(model).ravel().tolist()
    flash, ram = map(int, re.search(r"flash (\d+) bytes, RAM (\d+) bytes", text).groups())
    assert flash > built.constant_bytes and 0 <= ram - built.workspace_bytes < 64  # what linkers align
    assert int(re.search(r"cycles (\d+)", text)[1]) > 0
