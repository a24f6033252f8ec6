"""This module runs the same operations in PyTorch, ONNX Runtime, JAX and numba, where they are installed.

A peer gets the arrays that our kernel gets. Preparations are not timed: the layouts that it prefers, weights as
constants, compiled code. Outputs are given where a library takes them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Run = Callable[[], Any]
Maker = Callable[[str, Sequence[np.ndarray], Mapping[str, Any]], "tuple[Run, Callable[[Any], np.ndarray]] | None"]

_NCHW = (0, 3, 1, 2)
_NHWC = (0, 2, 3, 1)


def peers_of(
    operation: str, arrays: Sequence[np.ndarray], options: Mapping[str, Any], expected: np.ndarray, cores: int
) -> dict[str, Run]:
    """By library: a function without arguments that runs the operation once. One whose result is not ``expected`` is an
    error: its time could not be compared."""
    os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads={cores}")
    out = {}
    for name, (module, maker) in LIBRARIES.items():
        if importlib.util.find_spec(module) is None:
            continue
        made = maker(operation, arrays, {**options, "cores": cores})
        if made is None:
            continue
        run, fetch = made
        got = fetch(run()).reshape(expected.shape).astype("float64")
        worst = np.abs(got - expected).max() / max(float(np.abs(expected).max()), 1e-30)
        allowed = 1e-2 if operation == "bfloat16 matmul" else 2e-3  # results in bfloat16
        assert worst < allowed, f"{name} computes another {operation}: off by {worst:.1e}"
        out[name] = run
    return out


# -- PyTorch -------------------------------------------------------------------------------------------------------------


def _torch(operation: str, arrays: Sequence[np.ndarray], options: Mapping[str, Any]) -> Any:
    import torch
    import torch.nn.functional as functional

    torch.set_num_threads(options["cores"])
    torch.set_grad_enabled(False)
    x = [torch.from_numpy(a) for a in arrays[:-1]]
    out = torch.from_numpy(arrays[-1].copy())
    fetch = np.asarray

    def nchw(a: Any) -> Any:  # a view: channels last in memory
        return a.permute(*_NCHW)

    if operation in ("matmul", "constant matmul"):
        return lambda: torch.mm(x[0], x[1], out=out), fetch
    if operation == "batch matmul":
        return lambda: torch.bmm(x[0], x[1], out=out), fetch
    if operation == "matmul bias gelu":
        return lambda: functional.gelu(torch.addmm(x[2], x[0], x[1])), fetch
    if operation == "int8 matmul":
        return lambda: torch._int_mm(x[0], x[1]), fetch
    if operation == "bfloat16 matmul":  # its result is bfloat16, half the bytes of ours
        a, b = (e.view(torch.bfloat16) for e in x)
        half = torch.empty(out.shape, dtype=torch.bfloat16)
        return lambda: torch.mm(a, b, out=half), lambda y: np.asarray(y.float())
    if operation in ("conv2d", "depthwise conv2d"):
        weight = x[1].permute(3, 2, 0, 1) if operation == "conv2d" else x[1].permute(2, 0, 1)[:, None]
        weight = weight.contiguous(memory_format=torch.channels_last)
        groups = 1 if operation == "conv2d" else x[0].shape[3]
        stride, padding = options["stride"], options["padding"]
        data = nchw(x[0])
        return (
            lambda: functional.conv2d(data, weight, None, stride, padding, 1, groups),
            lambda y: np.ascontiguousarray(y.permute(*_NHWC).numpy()),
        )
    if operation == "softmax":
        return lambda: torch.softmax(x[0], -1, out=out), fetch
    if operation == "attention":
        heads = [a[None] for a in x]  # one batch of them: the form that has a kernel of its own
        return lambda: functional.scaled_dot_product_attention(*heads), fetch
    if operation == "layer norm":
        shape = x[0].shape[-1:]
        return lambda: functional.layer_norm(x[0], shape, x[1], x[2], 1e-5), fetch
    if operation == "mul add relu":
        return lambda: torch.clamp_min_(torch.addcmul(x[2], x[0], x[1], out=out), 0), fetch
    if operation == "row sum":
        return lambda: torch.sum(x[0], 1, out=out), fetch
    if operation == "argmax":
        return lambda: torch.argmax(x[0], 1), fetch
    if operation == "gemv":
        return lambda: torch.mv(x[0], x[1], out=out), fetch
    if operation == "transpose":
        return lambda: out.copy_(x[0].T), fetch
    if operation == "blur":
        image, sums = x[0], torch.empty((x[0].shape[0], x[0].shape[1] - 2))

        def blur() -> Any:  # a convolution and a pooling take several times as long
            torch.add(image[:, :-2], image[:, 1:-1], out=sums).add_(image[:, 2:])
            return torch.add(sums[:-2], sums[1:-1], out=out).add_(sums[2:]).mul_(1 / 9)

        return blur, fetch
    return None


# -- ONNX Runtime --------------------------------------------------------------------------------------------------------


def _onnx(operation: str, arrays: Sequence[np.ndarray], options: Mapping[str, Any]) -> Any:
    if importlib.util.find_spec("onnx") is None:
        return None
    import onnxruntime

    graph = _onnx_graph(operation, arrays, options)
    if graph is None:
        return None
    model, feeds, fetch = graph
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options["cores"]
    settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    keep = {name: onnxruntime.OrtValue.ortvalue_from_numpy(a) for name, a in feeds.items()}
    for name, value in keep.items():
        binding.bind_ortvalue_input(name, value)
    shape = session.get_outputs()[0].shape
    result = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, arrays[-1].dtype)
    binding.bind_ortvalue_output("out", result)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return result, keep

    return run, lambda pair: fetch(pair[0].numpy())


def _onnx_graph(operation: str, arrays: Sequence[np.ndarray], options: Mapping[str, Any]) -> Any:
    from onnx import helper, numpy_helper

    ins = list(arrays[:-1])

    def fetch(y: np.ndarray) -> np.ndarray:
        return y

    constant: tuple[int, ...] = ()
    node, attributes = {
        "matmul": ("MatMul", {}),
        "constant matmul": ("MatMul", {}),
        "batch matmul": ("MatMul", {}),
        "conv2d": ("Conv", {}),
        "depthwise conv2d": ("Conv", {}),
        "softmax": ("Softmax", {"axis": -1}),
        "layer norm": ("LayerNormalization", {"axis": -1, "epsilon": 1e-5}),
        "row sum": ("ReduceSum", {"keepdims": 0}),
        "transpose": ("Transpose", {"perm": [1, 0]}),
        "mul add relu": ("Mul", {}),
        "matmul bias gelu": ("MatMul", {}),
        "gemv": ("MatMul", {}),
        "attention": ("MultiHeadAttention", {"domain": "com.microsoft", "num_heads": len(ins[0])}),
    }.get(operation, (None, {}))
    if node is None:
        return None
    if operation in ("constant matmul", "matmul bias gelu"):
        constant = tuple(range(1, len(ins)))
    if node == "Conv":
        constant = (1,)
        channels = ins[0].shape[3]
        ins[0] = np.ascontiguousarray(ins[0].transpose(_NCHW))
        ins[1] = np.ascontiguousarray(
            ins[1].transpose(3, 2, 0, 1) if operation == "conv2d" else ins[1].transpose(2, 0, 1)[:, None]
        )
        pad, stride = options["padding"], options["stride"]
        attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "group": 1 if operation == "conv2d" else channels}

        def fetch(y: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(y.transpose(_NHWC))

    shape = arrays[-1].shape
    if operation == "attention":  # takes [batch, positions, heads · features]
        heads, *_, width = shape
        ins = [np.ascontiguousarray(a.swapaxes(0, 1)).reshape(1, a.shape[1], heads * width) for a in ins]
        shape = ins[0].shape

        def fetch(y: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(y.reshape(-1, heads, width).swapaxes(0, 1))

    names = [f"x{n}" for n in range(len(ins))]
    steps = [helper.make_node(node, names, ["out"], **attributes)]
    extra = []
    if operation == "row sum":
        extra = [numpy_helper.from_array(np.array([1], "int64"), "axes")]
        steps = [helper.make_node("ReduceSum", ["x0", "axes"], ["out"], keepdims=0)]
    elif operation == "mul add relu":
        steps = [
            helper.make_node("Mul", ["x0", "x1"], ["p"]),
            helper.make_node("Add", ["p", "x2"], ["s"]),
            helper.make_node("Relu", ["s"], ["out"]),
        ]
    elif operation == "matmul bias gelu":
        steps = [
            helper.make_node("MatMul", ["x0", "x1"], ["p"]),
            helper.make_node("Add", ["p", "x2"], ["s"]),
            helper.make_node("Gelu", ["s"], ["out"]),
        ]
    kind = helper.np_dtype_to_tensor_dtype
    if node == "Conv":
        shape = tuple(shape[n] for n in _NCHW)
    graph = helper.make_graph(
        steps,
        "peer",
        [
            helper.make_tensor_value_info(f"x{n}", kind(a.dtype), a.shape)
            for n, a in enumerate(ins)
            if n not in constant
        ],
        [helper.make_tensor_value_info("out", kind(arrays[-1].dtype), shape)],
        [numpy_helper.from_array(ins[n], f"x{n}") for n in constant] + extra,
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    feeds = {f"x{n}": a for n, a in enumerate(ins) if n not in constant}
    return model.SerializeToString(), feeds, fetch


# -- JAX -----------------------------------------------------------------------------------------------------------------


def _jax(operation: str, arrays: Sequence[np.ndarray], options: Mapping[str, Any]) -> Any:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def conv(x: Any, w: Any) -> Any:
        depthwise = operation == "depthwise conv2d"
        pad, stride = options["padding"], options["stride"]
        return lax.conv_general_dilated(
            x, w[:, :, None, :] if depthwise else w, (stride,) * 2, [(pad, pad)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=x.shape[3] if depthwise else 1,
        )  # fmt: skip

    def norm(x: Any, gamma: Any, beta: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * gamma + beta

    def blur(x: Any) -> Any:
        h, w = x.shape
        rows = x[:, : w - 2] + x[:, 1 : w - 1] + x[:, 2:]
        return (rows[: h - 2] + rows[1 : h - 1] + rows[2:]) / 9

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5, axis=-1) @ v

    functions: dict[str, Callable[..., Any]] = {
        "attention": attention,
        "matmul": jnp.matmul,
        "constant matmul": jnp.matmul,
        "batch matmul": jnp.matmul,
        "matmul bias gelu": lambda a, b, c: jax.nn.gelu(a @ b + c, approximate=False),
        "conv2d": conv,
        "depthwise conv2d": conv,
        "int8 matmul": lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        "bfloat16 matmul": lambda a, b: lax.dot(
            *(lax.bitcast_convert_type(e, jnp.bfloat16) for e in (a, b)), preferred_element_type=jnp.float32
        ),
        "softmax": jax.nn.softmax,
        "layer norm": norm,
        "mul add relu": lambda a, b, c: jnp.maximum(a * b + c, 0),
        "row sum": lambda x: x.sum(1),
        "argmax": lambda x, value: x.argmax(1),
        "gemv": jnp.matmul,
        "transpose": lambda x: x.T.copy(),
        "blur": blur,
    }
    if operation not in functions:
        return None
    compiled = jax.jit(functions[operation])
    x = [jax.device_put(a) for a in arrays[:-1]]
    return lambda: compiled(*x).block_until_ready(), np.asarray


# -- numba ---------------------------------------------------------------------------------------------------------------


def _numba(operation: str, arrays: Sequence[np.ndarray], options: Mapping[str, Any]) -> Any:
    import numba_kernels

    kernel = numba_kernels.KERNELS.get(operation)
    if kernel is None:
        return None
    x, out = arrays[:-1], arrays[-1].copy()

    def run() -> np.ndarray:
        kernel(*x, out)
        return out

    return run, np.asarray


LIBRARIES: dict[str, tuple[str, Maker]] = {
    "PyTorch": ("torch", _torch),
    "ONNX Runtime": ("onnxruntime", _onnx),
    "JAX": ("jax", _jax),
    "numba": ("numba", _numba),
}
"""By name: the module that must be there, and what makes a peer of an operation."""
