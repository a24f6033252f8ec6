"""The network of examples/microcontroller computes what NumPy does, on an emulated Cortex-M7 with its cycles printed."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "examples" / "microcontroller" / "keyword_spotting.py"
missing = [tool for tool in ("arm-none-eabi-gcc", "qemu-system-arm") if shutil.which(tool) is None]


@pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
def test_the_network_runs_on_a_cortex_m7(tmp_path):
    spec = importlib.util.spec_from_file_location("keyword_spotting", FILE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.write(tmp_path)
    text = example.run(tmp_path)
    scores = re.search(r"scores (.*)", text)
    assert scores, text
    assert [int(word) for word in scores[1].split()] == example.reference(example.spectrogram()).tolist()
    assert re.search(r"flash \d+ bytes .*RAM \d+ bytes \(workspace \d+\)", text)
    assert int(re.search(r"all +(\d+) cycles", text)[1]) > 0
