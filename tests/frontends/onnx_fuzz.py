"""Gives mutated ONNX models to the importer, in a child process with limits of memory and time.

``python -m tests.frontends.onnx_fuzz --n 20000 --seed 1`` mutates the bytes and the structure of small models. A model
is a graph, or an ``OnnxError``; anything else is a finding: another exception, a crash, more than a few seconds or 2 GB,
or a file that is opened outside of the model's folder (an audit hook watches).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

SECONDS, MEMORY = 20, 3 << 30
_HUGE = (0, -1, 1, 7, 255, 65536, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
_PATHS = (
    "../secret",
    "/etc/passwd",
    "a/../../secret",
    "link",
    "..\\secret",
    "data.bin",
    "",
    "no\nsuch\0file",
    "C:\\x",
    ".",
)


def _value(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[str], constants: dict[str, Any], **more: Any) -> Any:
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "net", inputs, [_value(n, []) for n in outputs], tensors)
    for o in graph.output:
        o.type.tensor_type.ClearField("shape")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)], **more)


def seeds() -> list[Any]:
    """Returns small models: a network, shapes computed from shapes, branches and loops, functions, external data."""
    node, f32 = helper.make_node, np.float32
    net = _model(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["c"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]), node("Flatten", ["p"], ["f"]),
            node("Gemm", ["f", "v", "b"], ["g"], transB=1), node("Softmax", ["g"], ["y"]),
        ],
        [_value("x", [1, 3, 8, 8])], ["y"],
        {"w": np.ones((4, 3, 3, 3), f32), "v": np.ones((5, 36), f32), "b": np.ones(5, f32)},
    )  # fmt: skip
    shapes = _model(
        [
            node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]), node("Concat", ["n", "rest"], ["t"], axis=0),
            node("Reshape", ["x", "t"], ["r"]), node("ConstantOfShape", ["four"], ["o"]), node("Range", ["a", "d", "e"], ["q"]),
            node("Tile", ["r", "reps"], ["m"]), node("Pad", ["m", "pads"], ["w"]), node("Slice", ["w", "zero", "two", "one"], ["k"]),
            node("Expand", ["zero", "four"], ["z"]), node("Resize", ["x", "", "scales"], ["u"]), node("TopK", ["r", "two"], ["v", "i"]),
        ],
        [_value("x", [2, 3])], ["k", "o", "q", "z", "u", "v"],
        {
            "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "rest": np.array([-1]), "four": np.array([4, 2]),
            "a": np.array(0), "d": np.array(9), "e": np.array(2), "reps": np.array([1, 2]), "pads": np.array([0, 1, 0, 1]),
            "scales": np.array([1.0, 2.0], f32),
        },
    )  # fmt: skip
    body = helper.make_graph(
        [node("Add", ["v", "v"], ["w"]), node("Identity", ["c"], ["d"]), node("Identity", ["w"], ["row"])], "body",
        [_value("i", [], TensorProto.INT64), _value("c", [], TensorProto.BOOL), _value("v", [3])],
        [_value("d", [], TensorProto.BOOL), _value("w", [3]), _value("row", [3])],
    )  # fmt: skip
    then = helper.make_graph([node("Relu", ["x"], ["t"])], "then", [], [_value("t", [3])])
    other = helper.make_graph([node("Exp", ["x"], ["e"])], "else", [], [_value("e", [3])])
    control = _model(
        [
            node("If", ["yes"], ["b"], then_branch=then, else_branch=other),
            node("Loop", ["n", "yes", "b"], ["l", "rows"], body=body), node("Twice", ["l"], ["y"], domain="mine", k=2),
        ],
        [_value("x", [3])], ["y", "rows"], {"yes": np.array(True), "n": np.array(4)},
        functions=[
            helper.make_function(
                "mine", "Twice", ["p"], ["q"], [node("Add", ["p", "p"], ["s"]), node("Neg", ["s"], ["q"])],
                [helper.make_opsetid("", 20)], ["k"],
            )
        ],
    )  # fmt: skip
    outside = _model([node("MatMul", ["x", "w"], ["y"])], [_value("x", ["n", 4])], ["y"], {"w": np.ones((4, 4), f32)})
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "data.bin"), ("offset", "0"), ("length", "64")):
        tensor.external_data.add(key=key, value=text)
    recurrent = _model(
        [node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=2), node("LayerNormalization", ["h", "s"], ["z"])],
        [_value("x", [3, 1, 4])], ["y", "z"],
        {"w": np.ones((1, 8, 4), f32), "r": np.ones((1, 8, 2), f32), "s": np.ones(2, f32)},
    )  # fmt: skip
    return [net, shapes, control, outside, recurrent]


def mutated(rng: random.Random, proto: Any, others: list[Any]) -> bytes:
    """Returns the bytes of a model with one to four changes, of its structure or of its bytes."""
    proto = type(proto).FromString(proto.SerializeToString())
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(_CHANGES)(rng, proto, rng.choice(others))
    data = bytearray(proto.SerializeToString())
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 3, 9))):
            at = rng.randrange(len(data))
            kind = rng.randrange(4)
            if kind == 0:
                data[at] = rng.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 2:
                del data[at : at + rng.choice((1, 2, 40))]
            else:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 5))))
            if not data:
                break
    return bytes(data)


def _node(rng: random.Random, proto: Any) -> Any:
    lists = [proto.graph.node, *[f.node for f in proto.functions]]
    lists += [a.g.node for n in proto.graph.node for a in n.attribute if a.HasField("g")]
    nodes = [n for some in lists for n in some]
    return rng.choice(nodes) if nodes else proto.graph.node.add()


def _names(proto: Any) -> list[str]:
    return [
        *[name for n in proto.graph.node for name in (*n.input, *n.output)],
        *[t.name for t in proto.graph.initializer],
        "",
    ]


def _change_input(rng: random.Random, proto: Any, other: Any) -> None:
    node = _node(rng, proto)
    if node.input and rng.random() < 0.8:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(proto))
    else:
        node.input.append(rng.choice(_names(proto)))


def _change_operator(rng: random.Random, proto: Any, other: Any) -> None:
    from onnx import defs

    node = _node(rng, proto)
    node.op_type = rng.choice(
        [_node(rng, other).op_type, rng.choice(defs.get_all_schemas()).name, "Twice", "x/../\n" * 3]
    )
    node.domain = rng.choice((node.domain, node.domain, "", "mine", "ai.onnx.ml"))


def _change_attribute(rng: random.Random, proto: Any, other: Any) -> None:
    node = _node(rng, proto)
    if not node.attribute:
        names = ("axis", "axes", "to", "pads", "k", "perm", "kernel_shape", "group", "hidden_size", "mode", "body")
        node.attribute.append(
            helper.make_attribute(rng.choice(names), rng.choice((_HUGE[rng.randrange(12)], [2, 2], "linear", 0.5)))
        )
        return
    a = rng.choice(node.attribute)
    kind = rng.randrange(4)
    if kind == 0 and a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(_HUGE)
    elif kind == 1:
        a.i, a.type = rng.choice(_HUGE), a.INT
    elif kind == 2:
        a.ref_attr_name = rng.choice(("k", "nothing"))
    else:
        a.CopyFrom(rng.choice([helper.make_attribute(a.name, v) for v in (3, [1] * 9, "?", 1e30, [0.5])]))


def _change_tensor(rng: random.Random, proto: Any, other: Any) -> None:
    tensors = [*proto.graph.initializer, *[a.t for n in proto.graph.node for a in n.attribute if a.HasField("t")]]
    if not tensors:
        return
    t = rng.choice(tensors)
    kind = rng.randrange(6)
    if kind == 0 and t.dims:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(_HUGE)
    elif kind == 1:
        t.dims.append(rng.choice(_HUGE))
    elif kind == 2:
        t.data_type = rng.randrange(30)
    elif kind == 3 and t.data_type == TensorProto.INT64 and len(t.raw_data) >= 8 and len(t.raw_data) % 8 == 0:
        values = np.frombuffer(t.raw_data, np.int64).copy()
        values[rng.randrange(len(values))] = rng.choice(_HUGE)
        t.raw_data = values.tobytes()
    elif kind == 4:
        t.name = rng.choice(_names(proto))
    else:
        t.data_location = TensorProto.EXTERNAL
        del t.external_data[:]
        t.external_data.add(key="location", value=rng.choice(_PATHS))
        t.external_data.add(
            key=rng.choice(("offset", "length")), value=rng.choice(("0", "64", "-1", "9" * 30, "x", str(2**62)))
        )


def _change_shape(rng: random.Random, proto: Any, other: Any) -> None:
    item = rng.choice(list(proto.graph.input) or [proto.graph.input.add()])
    kind = rng.randrange(4)
    if kind == 0 and item.type.tensor_type.shape.dim:
        rng.choice(item.type.tensor_type.shape.dim).dim_value = rng.choice(_HUGE)
    elif kind == 1 and item.type.tensor_type.shape.dim:
        rng.choice(item.type.tensor_type.shape.dim).dim_param = rng.choice(
            ("n", "x", "a b\n", "", "9" * 300, item.name)
        )
    elif kind == 2:
        item.type.tensor_type.elem_type = rng.randrange(30)
    else:
        item.name = rng.choice(("a/../b", "x\ny", "", "n" * 5000, "class", "ü", rng.choice(_names(proto))))


def _change_list(rng: random.Random, proto: Any, other: Any) -> None:
    nodes = proto.graph.node
    kind = rng.randrange(5)
    if kind == 0 and nodes:
        del nodes[rng.randrange(len(nodes))]
    elif kind == 1:
        nodes.append(_node(rng, other))
    elif kind == 2 and len(nodes) > 1:
        order = list(nodes)
        rng.shuffle(order)
        del nodes[:]
        nodes.extend(order)
    elif kind == 3 and proto.functions:
        function = rng.choice(proto.functions)
        function.node.append(helper.make_node("Twice", list(function.input), list(function.output), domain="mine"))
    elif proto.opset_import:
        rng.choice(proto.opset_import).version = rng.choice((*range(1, 30), *_HUGE))


def _nest(rng: random.Random, proto: Any, other: Any) -> None:
    node = _node(rng, proto)
    for _ in range(rng.choice((1, 3, 30))):
        graph = helper.make_graph([node], "g", [], [_value(node.output[0] if node.output else "", [])])
        node = (
            helper.make_node(
                "If", [rng.choice(_names(proto))], list(node.output)[:1], then_branch=graph, else_branch=graph
            )
            if graph.ByteSize() < 1 << 16
            else node
        )
    proto.graph.node.append(node)


_CHANGES = (
    _change_input, _change_operator, _change_attribute, _change_attribute, _change_tensor, _change_tensor, _change_shape,
    _change_list, _nest,
)  # fmt: skip


def _child(folder: str, jobs: Any, results: Any) -> None:
    """Reads models until there are no more; says what came of each."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY + (2 << 30), MEMORY + (2 << 30)))
    from tilewright.frontends.onnx import OnnxError, from_onnx

    from_onnx(seeds()[0].SerializeToString())
    allowed = (os.path.realpath(folder), os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix), os.getcwd())
    opened: list[str] = []

    def watch(event: str, arguments: Any) -> None:
        if event == "open" and isinstance(arguments[0], str):
            path, mode = os.path.realpath(arguments[0]), arguments[1] or "r"
            writes = isinstance(mode, str) and any(c in mode for c in "wax+")
            if (
                writes
                and not path.startswith("/dev/null")
                or not path.startswith(allowed)
                and "/secret" in path
                or path == "/etc/passwd"
            ):
                opened.append(path)
        elif event in ("subprocess.Popen", "os.system", "os.exec", "socket.connect", "os.remove", "shutil.rmtree"):
            opened.append(event)

    sys.addaudithook(watch)
    for number, data in iter(jobs.get, None):
        opened.clear()
        path = os.path.join(folder, "models", "m.onnx")
        start, outcome = time.process_time(), "graph"
        try:
            from_onnx(path if data is None else data)
        except OnnxError:
            outcome = "error"
        except BaseException as error:  # whatever it is, it is a finding
            outcome = f"finding: {type(error).__name__}: {str(error)[:200]}"
        if time.process_time() - start > SECONDS / 2:
            outcome = f"finding: took {time.process_time() - start:.0f} s"
        results.put((number, f"finding: opened {opened}" if opened else outcome))


class Reader:
    """A child process that reads models; it is replaced when it crashes or takes too long."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.context = folder, multiprocessing.get_context("spawn")
        self.start()

    def start(self) -> None:
        self.jobs, self.results = self.context.Queue(), self.context.Queue()
        self.process = self.context.Process(
            target=_child, args=(str(self.folder), self.jobs, self.results), daemon=True
        )
        self.process.start()
        self.fresh = True

    def read(self, data: bytes) -> str:
        """Returns ``graph``, ``error`` or a finding. The model is a file, so that external data is looked for."""
        (self.folder / "models" / "m.onnx").write_bytes(data)
        self.jobs.put((0, None))
        deadline = time.monotonic() + SECONDS * (10 if self.fresh else 3)
        self.fresh = False
        while time.monotonic() < deadline:
            try:
                return str(self.results.get(timeout=1)[1])
            except Exception:  # queue.Empty
                if not self.process.is_alive():
                    break
        code = self.process.exitcode
        self.process.kill()
        self.start()
        return f"finding: the process ended with {code}" if code is not None else "finding: it does not end"

    def stop(self) -> None:
        self.jobs.put(None)
        self.process.join(5)
        self.process.kill()


def prepared(folder: Path) -> Path:
    """Returns the folder, with a place for the model, its data, and what must not be read."""
    (folder / "models").mkdir()
    (folder / "secret").write_bytes(b"s" * 64)
    (folder / "models" / "data.bin").write_bytes(np.ones(16, np.float32).tobytes())
    (folder / "models" / "link").symlink_to(folder / "secret")
    return folder


def run(count: int, seed: int, keep: Path | None = None) -> tuple[dict[str, int], list[str]]:
    """Returns how many models were graphs and errors, and the findings."""
    rng, models = random.Random(seed), seeds()
    tally, findings = {"graph": 0, "error": 0}, []
    with tempfile.TemporaryDirectory() as name:
        reader = Reader(prepared(Path(name)))
        for n in range(count):
            data = mutated(rng, rng.choice(models), models)
            outcome = reader.read(data)
            if outcome in tally:
                tally[outcome] += 1
                continue
            findings.append(f"{seed}:{n}: {outcome}")
            if keep is not None:
                (keep / f"finding-{seed}-{n}.onnx").write_bytes(data)
            print(findings[-1], flush=True)
        reader.stop()
    return tally, findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frontends.onnx_fuzz", description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the models with findings")
    given = parser.parse_args()
    tally, findings = run(given.n, given.seed, given.keep)
    print(f"{given.n} models: {tally['graph']} graphs, {tally['error']} errors, {len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    raise SystemExit(main())
