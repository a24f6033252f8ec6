"""Launches kernels: ``@jit`` functions on NumPy arrays, tensors of PyTorch, and arrays on NVIDIA's GPUs.

What a launch is compiled for is its key: the type of each array, the kind of each number, each constant, and which arrays
overlap. One key gives one :class:`~tilewright.tir.PrimFunc`, a parallel loop over the programs of the grid, and its machine code.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..codegen import Target, compile
from ..codegen.late_tables import TARGET_KINDS
from ..codegen.lowered import written_data
from ..codegen.machine.target import FIRST_COPIES, WARP, block_shared_bytes, compute_capability
from ..codegen.runtime.arguments import CUDA_DEVICES, ArrayView, lies_on_gpu, view_of
from ..codegen.runtime.module import Module
from ..tir.expr import IntImm, Var, const
from ..tir.expr.dtype import DType
from ..tir.stmt import Buffer, For, PrimFunc, Stmt, replace_buffers
from .basic_rows import cdiv as _cdiv_row
from .block_values import BlockValue, PointerArgument, of_expression
from .kernel_builder import ASSERTS, AccessSite, KernelBuilder, NeedsWideIndices
from .kernel_source import KernelSource
from .memory_rows import make_tensor_descriptor
from .quick_launch import QuickForm, exact, form_of, quick_key
from .reader import KernelReader, Outside
from .rows import Builtin, constexpr
from .staged_loops import LoopStages
from .thread_layout import FragmentLayout, own_registers
from .threaded_builder import ThreadedBuilder
from .tools.tensor_descriptor import TensorDescriptor

OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
"""What a launch says to GPUs, which read ``num_warps``. On processors it changes nothing; a kernel gets those that are among its
parameters."""

MOST_FORMS = 8
"""The number of forms of arguments of one kernel that are launched quickly."""

NUM_WARPS = 4
"""The warps that run a program on GPUs, where a launch does not say."""
MOST_THREADS = 1024
MULTIPLE = 16
"""Kernels for GPUs know which integers are multiples of this, as Triton's do."""

_NARROW = 2**30
"""Arrays of fewer elements, and smaller integers, are indexed with 32 bits."""

Key = tuple[Any, ...]
Fragments = Mapping[tuple[int, ...], FragmentLayout]


class CompiledKernel:
    """One kernel, compiled for one kind of arguments: its program ``func`` and its ``module``."""

    def __init__(
        self, func: PrimFunc, sites: Sequence[AccessSite], name: str, target: Target, uses: tuple[Outside, ...] = ()
    ) -> None:
        self.func = func
        self.sites = tuple(sites)
        self.name = name
        self.module: Module = compile(func, target)
        self.entry = self.module.entry
        self.uses: tuple[Outside, ...] = uses

    def __repr__(self) -> str:
        return f"CompiledKernel({self.name})"

    def script(self) -> str:
        """Return the program as text."""
        return self.func.script()

    def is_current(self) -> bool:
        """Return whether the globals that the kernel was compiled with are still the same."""
        return all([use.is_current() for use in self.uses])

    def fault(self, faults: np.ndarray[Any, Any]) -> Exception:
        """Return the error that says which assertions did not hold, or which accesses were outside of their arguments."""
        lines, broken = [], []
        for site, noted in zip(self.sites, faults.tolist(), strict=True):
            if noted and site.verb == ASSERTS:
                broken.append(f"{site.argument or 'an assertion does not hold'}\n    {site.place}")
            elif noted:
                at = noted - 1 if noted > 0 else noted
                lines.append(f"{site.verb} {site.argument}[{at}], outside of its elements\n    {site.place}")
        if broken:
            return AssertionError(f"{self.name}: {'; '.join(broken)}")
        return IndexError(
            f"{self.name} {'; it '.join(lines)}\nA mask leaves out what lies outside; those elements were skipped."
        )


class JitFunction:
    """A function with ``@triton.jit``: ``kernel[grid](…)`` launches it, and other kernels call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.kernel_source = KernelSource(function)
        self.compiled: dict[Key, CompiledKernel] = {}
        self.quick: list[QuickForm] = []
        self.arg_names = tuple(self.kernel_source.defaults)

    def __repr__(self) -> str:
        return f"JitFunction({self.kernel_source.name})"

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        return functools.partial(self.run, grid=grid)

    def __call__(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError(
            f"{self.kernel_source.name} is a kernel: launch it with a grid, {self.kernel_source.name}[grid](…)"
        )

    def warmup(self, *args: Any, grid: Any, **named: Any) -> CompiledKernel:
        """Compile for these arguments without running; returns the compiled kernel."""
        return self.run(*args, grid=grid, warmup=True, **named)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> CompiledKernel:
        """Run one program for each point of the grid; returns the compiled kernel.

        ``grid`` has one to three sizes, or is a function of the arguments by name that gives them. Arrays are changed in place.

        Raises IndexError after the run when a program accessed an element outside of an array, and AssertionError when
        an assertion did not hold.
        """
        if not warmup and "target" not in named and _default is None:
            for form in self.quick:
                try:
                    quick = form.launch(grid, *args, **named)
                except TypeError:  # other arguments; the careful way says what is wrong
                    continue
                if quick is not None:
                    return quick  # type: ignore[no-any-return]
        source = self.kernel_source
        target = named.pop("target", None) if "target" not in source.signature.parameters else None
        options = {n: v for n, v in named.items() if n in OPTIONS and n not in source.signature.parameters}
        for n, v in options.items():
            if v is not None and (isinstance(v, bool) or not isinstance(v, int) or v < 1):
                raise ValueError(f"{n}={v!r}; it is a positive integer")
        bound = source.bound(args, {n: v for n, v in named.items() if n not in options} if options else named)
        if target is None and _default is None and any(map(lies_on_gpu, _arrays_in(bound.values()))):
            target = "cuda"
        machine = _machine(target)
        sizes = _grid(grid, bound)
        warps = options.get("num_warps") or NUM_WARPS
        launch = _Launch(source, bound, sizes, machine, warps, options.get("num_stages"))
        kernel = self.compiled.get(launch.key)
        if kernel is None or not kernel.is_current():
            kernel = self.compiled[launch.key] = launch.compiled()
        self.note(launch, bound, kernel)
        if not warmup and 0 not in sizes:
            faults = np.zeros(max(1, len(kernel.sites)), np.int64)
            kernel.entry(*launch.values(), faults)
            if faults.any():
                raise kernel.fault(faults[: len(kernel.sites)])
        return kernel

    def note(self, launch: _Launch, bound: Mapping[str, Any], kernel: CompiledKernel) -> None:
        """Remember a kernel for quick launches of the same kind."""
        if launch.threads or launch.wide or len(launch.groups) < len(launch.arrays):
            return
        kinds = form_of(self.kernel_source, bound, lambda name, x: is_constant(self.kernel_source, name, x))
        if kinds is None:
            return
        form = next((f for f in self.quick if f.kinds == kinds), None)
        if form is None:
            if len(self.quick) == MOST_FORMS:
                return
            form = QuickForm(self.kernel_source, kinds, _NARROW, frozenset(OPTIONS))
            self.quick.append(form)
        count = max(1, len(kernel.sites))
        found = (kernel.entry.tried(), kernel, count, bytes(8 * count))
        form.table[quick_key(kinds, bound, launch.rank)] = found


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return a kernel from a function over blocks; its source is read, the function does not run.

    The options of Triton's ``jit`` (``do_not_specialize``, ``noinline``, …) are for GPUs, and unknown ones are refused.
    """
    known = {
        "version",
        "repr",
        "launch_metadata",
        "do_not_specialize",
        "do_not_specialize_on_alignment",
        "debug",
        "noinline",
    }
    unknown = set(options) - known
    if unknown:
        raise TypeError(f"jit has no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return JitFunction if function is None else JitFunction(function)


def set_allocator(allocator: Callable[[int, int, Any], Any]) -> None:
    """Take what gives GPUs memory for windows made in kernels; processors need none, and do not call it."""
    if not callable(allocator):
        raise TypeError(f"an allocator is a function of a size, an alignment and a stream, not {allocator!r}")


class _ConstantFunction:
    """A function of integers that programs call on the host, and kernels on what is known when they are compiled."""

    def __init__(self, function: Callable[..., int], row: Builtin | None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.constant_function = row or True

    def __call__(self, *args: int) -> int:
        return self.function(*args)


def _cdiv(x: int, y: int) -> int:
    """Return x / y rounded up.

    >>> _cdiv(7, 4)
    2
    """
    return -(-x // y)


def _next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least ``n``.

    >>> _next_power_of_2(781)
    1024
    """
    return 1 << max(n - 1, 0).bit_length()


def constexpr_function(function: Callable[..., Any]) -> Any:
    """Return a function that kernels may call on what is known when they are compiled. On the host it is Python's own."""
    return _ConstantFunction(function, None)


cdiv = _ConstantFunction(_cdiv, _cdiv_row)
next_power_of_2 = _ConstantFunction(_next_power_of_2, None)


def _grid(grid: Any, bound: Mapping[str, Any]) -> tuple[int, int, int]:
    """Returns the three sizes of a grid."""
    sizes = grid(dict(bound)) if callable(grid) else grid
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(sizes) <= 3 or any(
        isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in sizes
    ):
        raise ValueError(f"the grid {sizes} is no tuple of one to three sizes")
    return (*map(int, sizes), *(1,) * (3 - len(sizes)))  # type: ignore[return-value]


class DeviceMemory:
    """Elements side by side in the memory of a GPU, which another library owns."""

    def __init__(self, pointer: int, dtype: str, count: int, itemsize: int, owner: Any, writable: bool) -> None:
        self.view = ArrayView(pointer, dtype, (count,), (1,), itemsize, writable, pointer % itemsize == 0, owner)

    def __repr__(self) -> str:
        return f"DeviceMemory({self.view.dtype}[{self.view.shape[0]}])"

    def array_view(self) -> ArrayView:
        """Return the elements as what the checks of arguments look at."""
        return self.view

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_DEVICES[0], 0


class _Array:
    """An argument in memory: its type, its first address, and its elements in one dimension."""

    __slots__ = ("array", "count", "dtype", "start")

    array: np.ndarray[Any, Any] | DeviceMemory

    def __init__(self, name: str, x: Any) -> None:
        if isinstance(x, np.ndarray):
            self.dtype, self.start = _name_of(x.dtype), x.__array_interface__["data"][0]
            if x.ndim == 1 and x.strides[0] == x.itemsize:
                flat = x
            elif x.flags.c_contiguous:
                flat = x.reshape(-1)
            else:
                strides = [n // x.itemsize for n in x.strides]
                flat = np.lib.stride_tricks.as_strided(
                    x, (_reach(name, x.shape, strides),), (x.itemsize,), writeable=x.flags.writeable
                )
            self.array, self.count = flat, flat.size
            return
        x = x.detach() if hasattr(x, "detach") else x
        if lies_on_gpu(x):
            try:
                view = view_of(x, CUDA_DEVICES)
            except (ValueError, BufferError, RuntimeError) as e:
                raise TypeError(f"{name}: {e}") from None
            assert view is not None
            self.dtype, self.start = view.dtype, view.pointer
            self.count = _reach(name, view.shape, view.strides)
            self.array = DeviceMemory(view.pointer, view.dtype, self.count, view.itemsize, view.owner, view.writable)
            return
        if x.device.type != "cpu":
            raise TypeError(
                f"{name} lies on {x.device}; kernels run on arrays in the memory of the processor or of NVIDIA's GPUs"
            )
        self.dtype, self.start = _torch_name(x.dtype), x.data_ptr()
        if x.is_contiguous():
            flat = x.view(-1)
        else:
            flat = x.as_strided((_reach(name, x.shape, x.stride()),), (1,))
        self.count = flat.numel()
        self.array = flat.numpy() if self.dtype in _NUMPY_TYPES else _bits(flat, self.dtype)


def _bits(flat: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Returns a tensor of a type that NumPy lacks as the integers of its bits, in the same memory."""
    import torch

    wide = DType(dtype).bytes == 2
    bits: np.ndarray[Any, Any] = flat.view(torch.int16 if wide else torch.uint8).numpy()
    return bits.view(np.uint16) if wide else bits


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name


@functools.cache
def _torch_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


_NUMPY_TYPES = frozenset("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split())


def _reach(name: str, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Returns the number of elements from the first to the last one."""
    if any(n < 0 for n in strides):
        raise ValueError(f"{name} has negative strides; a pointer to its first element would not reach the others")
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def is_constant(source: KernelSource, name: str, x: Any) -> bool:
    """Return whether a kernel is compiled for the value of an argument."""
    return name in source.constants or type(x) is bool or x is None or isinstance(x, (DType, JitFunction))


class _Launch:
    """The arguments of one launch, and its key."""

    def __init__(
        self, source: KernelSource, bound: dict[str, Any], grid: tuple[int, int, int], target: Target, warps: int,
        stages: int | None = None,
    ) -> None:  # fmt: skip
        self.source, self.grid, self.target = source, grid, target
        self.threads = _threads(target, warps)
        """The threads that run one program, or 0 on processors."""
        self.stages = stages
        """The stages of loops with products, None where the launch does not say."""
        self.arrays: dict[str, _Array] = {}
        self.windows: dict[str, TensorDescriptor] = {}
        self.scalars: dict[str, int | float] = {}
        self.constants: dict[str, Any] = {}
        self.tuples: dict[str, Any] = {}
        parts: list[Any] = []
        wide = grid[0] * grid[1] * grid[2] >= _NARROW
        single: dict[str, Any] = {}
        for name, x in bound.items():
            self.tuples[name] = self._without_tuples(name, x, single, bound)
        for name, x in single.items():
            kind = type(x)
            if is_constant(source, name, x):
                self.constants[name] = x
                parts.append((kind, exact(x)))
            elif kind is int or isinstance(x, np.integer):
                x = int(x)
                if x == 1:
                    self.constants[name] = x
                    parts.append(1)
                else:
                    if not -(2**63) <= x < 2**63:
                        raise OverflowError(f"{name} = {x} has more than 64 bits")
                    wide = wide or not -_NARROW < x < _NARROW
                    self.scalars[name] = x
                    parts.append((x >= 0, not -(2**31) <= x < 2**31))
            elif kind is float or isinstance(x, np.floating):
                self.scalars[name] = float(x)
                parts.append("float")
            elif kind is TensorDescriptor:
                self.windows[name] = x
                self.arrays[name] = one = _Array(name, x.base)
                for n, (size, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
                    wide = wide or not size < _NARROW or not stride < _NARROW
                    self.scalars[f"{name}_size{n}"] = size
                    if n < len(x.shape) - 1:
                        self.scalars[f"{name}_stride{n}"] = stride
                wide = wide or one.count >= _NARROW
                parts.append((one.dtype, tuple(x.block_shape), x.padding))
            elif isinstance(x, np.ndarray) or (hasattr(x, "data_ptr") and hasattr(x, "stride")) or lies_on_gpu(x):
                self.arrays[name] = one = _Array(name, x)
                wide = wide or one.count >= _NARROW
                parts.append(one.dtype)
            else:
                raise TypeError(
                    f"{source.name}: {name} is {x!r}; a kernel takes arrays and numbers, and as tl.constexpr what is known when it is compiled"
                )
        self.wide = wide
        self.sixteens = frozenset(
            name for name, x in self.scalars.items() if self.threads and isinstance(x, int) and x % MULTIPLE == 0
        )
        """The integers that are multiples of 16, as which kernels for GPUs know them."""
        self.aligned = all(
            one.start % MULTIPLE == 0 for one in self.arrays.values() if isinstance(one.array, DeviceMemory)
        )
        """Whether arrays on a GPU begin at multiples of 16 bytes; copies of arrays in main memory do."""
        self._check_places()
        self.groups = self._groups()
        rank = 3 if grid[2] > 1 else 2 if grid[1] > 1 else 1
        self.rank = rank
        self.key: Key = (
            tuple(parts),
            tuple(single) if len(single) > len(bound) else None,
            wide,
            rank,
            tuple(tuple(names) for names, _ in self.groups) if len(self.groups) < len(self.arrays) else None,
            (str(target), self.threads, stages if self.threads else None, self.sixteens, self.aligned),
        )
        try:
            hash(self.key)
        except TypeError as e:
            raise TypeError(f"{source.name}: a constant is not hashable: {e}") from None

    def _check_places(self) -> None:
        """Raise TypeError for arrays on a GPU beside others in main memory, or for another machine."""
        here = [name for name, one in self.arrays.items() if not isinstance(one.array, DeviceMemory)]
        there = [name for name in self.arrays if name not in here]
        if here and there:
            raise TypeError(
                f"{self.source.name}: {' and '.join(there)} on the GPU, {' and '.join(here)} in main memory; "
                "the arrays of a launch lie in one place"
            )
        if there and self.target.kind != "cuda":
            raise TypeError(
                f"{self.source.name}: {' and '.join(there)} on the GPU, and the launch is for {self.target.kind}; "
                'launch with target="cuda", or move the arrays to main memory'
            )

    def _without_tuples(self, name: str, x: Any, single: dict[str, Any], taken: Mapping[str, Any]) -> Any:
        """Adds an argument to the single ones, the parts of a tuple by names of their own, which it returns."""
        if not isinstance(x, tuple) or is_constant(self.source, name, x):
            single[name] = x
            return name
        names = []
        for n, part in enumerate(x):
            own = f"{name}_{n}"
            while own in taken or own in single:
                own += "_"
            names.append(self._without_tuples(own, part, single, taken))
        return tuple(names)

    def _groups(self) -> list[tuple[list[str], int]]:
        """Returns the arrays that share memory, with the address where it begins."""
        spans = sorted([(one.start, one.start + one.count * DType(one.dtype).bytes) for one in self.arrays.values()])
        if all([end <= start for (_, end), (start, _) in itertools.pairwise(spans)]):
            return [([name], one.start) for name, one in self.arrays.items()]
        out: list[tuple[list[str], int]] = []
        end = -1
        for name, one in sorted(self.arrays.items(), key=lambda item: item[1].start):
            if out and one.start < end and one.count:
                out[-1][0].append(name)
            else:
                out.append(([name], one.start))
            end = max(end, one.start + one.count * DType(one.dtype).bytes)
        order = {name: n for n, name in enumerate(self.arrays)}
        for names, _ in out:
            names.sort(key=order.__getitem__)
            types = {self.arrays[n].dtype for n in names}
            if len(types) > 1:
                raise TypeError(
                    f"{self.source.name}: {' and '.join(names)} share memory and have different types, {' and '.join(sorted(types))}"
                )
        return sorted(out, key=lambda group: order[group[0][0]])

    def values(self) -> list[Any]:
        """Returns the arguments of the compiled function, but the last one."""
        out: list[Any] = []
        positions: list[int] = []
        for names, start in self.groups:
            first = self.arrays[names[0]]
            if len(names) == 1:
                out.append(first.array)
                continue
            size = DType(first.dtype).bytes
            last = max(self.arrays[n].start + self.arrays[n].count * size for n in names)
            if any((self.arrays[n].start - start) % size for n in names):
                raise ValueError(f"{' and '.join(names)} overlap by parts of an element")
            whole = max((self.arrays[n] for n in names), key=lambda one: one.count)
            if whole.start == start and whole.start + whole.count * size == last:
                out.append(whole.array)
            elif isinstance(first.array, DeviceMemory):
                owners = [one for n in names if isinstance(one := self.arrays[n].array, DeviceMemory)]
                writable = all(one.view.writable for one in owners)
                out.append(DeviceMemory(start, first.dtype, (last - start) // size, size, owners, writable))
            else:
                out.append(_memory(start, (last - start) // size, first.array))
            positions += [(self.arrays[n].start - start) // size for n in names]
        if self.threads:
            numbers = [x // MULTIPLE if name in self.sixteens else x for name, x in self.scalars.items()]
            return [*out, *numbers, *positions, *self.grid[: self.rank]]
        programs = self.grid[0] * self.grid[1] * self.grid[2]
        return [*out, *self.scalars.values(), *positions, *self.grid[: self.rank - 1], programs]

    def compiled(self) -> CompiledKernel:
        """Compile the kernel for this launch."""
        try:
            func, sites, uses = self.program(DType("int64" if self.wide else "int32"))
        except NeedsWideIndices:
            func, sites, uses = self.program(DType("int64"))
        return CompiledKernel(func, sites, self.source.name, self.target, uses)

    def program(self, index: DType) -> tuple[PrimFunc, list[AccessSite], tuple[Outside, ...]]:
        """Return the program of this launch, its accesses in order, and the globals that it was made of."""
        params: list[Var] = []
        buffers: dict[Var, Buffer] = {}
        names: dict[str, Any] = dict(self.constants)
        known: set[Var] = set()
        where: list[tuple[str, Buffer, Var | None]] = []
        for group, _ in self.groups:
            handle, extent = Var(group[0], "handle"), Var(f"n_{group[0]}", index)
            known.add(extent)
            dtype = DType(self.arrays[group[0]].dtype)
            begin = MULTIPLE if self.threads and self.aligned else dtype.bytes
            buffers[handle] = buffer = Buffer(group[0], (extent,), dtype, data_alignment=begin)
            params.append(handle)
            where += [(n, buffer, Var(f"start_{n}", index) if len(group) > 1 else None) for n in group]
        for name, x in self.scalars.items():
            times = name in self.sixteens
            var = Var(f"{name}_{MULTIPLE}" if times else name, "float32" if isinstance(x, float) else index)
            params.append(var)
            if isinstance(x, int) and x >= 0:
                known.add(var)
            kind = DType("float32" if isinstance(x, float) else "int32" if -(2**31) <= x < 2**31 else "int64")
            names[name] = of_expression(var * const(MULTIPLE, index) if times else var, kind)
        for name, buffer, position in where:
            start: Any = const(0, index) if position is None else position
            if position is not None:
                params.append(position)
                known.add(position)
            argument = PointerArgument(name, buffer, start)
            names[name] = BlockValue((), index, _always(start), pointer=argument)
        handle, accesses = Var("faults", "handle"), Var("accesses", index)
        faults = Buffer("faults", (accesses,), DType("int64"))
        grid: _Grid = _ThreadBlocks(self, index, known) if self.threads else _ProgramLoop(self, index, known)
        params += grid.params
        buffers[handle] = faults
        params.append(handle)
        written: frozenset[Buffer] = frozenset(b for _, b, _ in where)
        fragments: Fragments = {}
        while True:
            builder = grid.builder(faults, set(known), written, fragments)
            builder.outer = {*known, *params}
            body, outside = self.body(builder, dict(names))
            found = frozenset(b for b in written if b.data in written_data(PrimFunc((), body, {})))
            wanted = builder.wanted_fragments() if isinstance(builder, ThreadedBuilder) else fragments
            if not self.threads or (found, wanted) == (written, fragments):
                break
            written, fragments = found, wanted
        count = max(1, len(builder.sites))
        body = grid.around(body, builder)
        fixed = faults.with_(shape=(IntImm(count, index),))
        body = replace_buffers(body, {faults: fixed})
        buffers[handle] = fixed
        ordered = {p: buffers[p] for p in params if p in buffers}
        func = PrimFunc(tuple(params), body, ordered, {"global_symbol": self.source.name})
        return func, builder.sites, outside

    def body(self, builder: KernelBuilder, names: dict[str, Any]) -> tuple[Stmt, tuple[Outside, ...]]:
        """Return what one program does, and the globals that it was made of."""
        with builder.scope() as inner:
            for name, window in self.windows.items():
                rank = len(window.shape)
                extents = tuple([names.pop(f"{name}_size{n}") for n in range(rank)])
                steps = (*[names.pop(f"{name}_stride{n}") for n in range(rank - 1)], 1)
                names[name] = make_tensor_descriptor.meaning(
                    builder, names[name], extents, steps, tuple(window.block_shape), window.padding
                )
            reader = KernelReader(builder)
            bound = {n: _named_parts(self.tuples[n], names) for n in self.source.signature.parameters}
            reader.call(self.source, bound)
        return inner.statement(), tuple(reader.outside)


class _Grid(Protocol):
    """How the programs of a launch run. ``params``: what the function takes for the sizes of the grid."""

    params: list[Var]

    def builder(
        self, faults: Buffer, known: set[Var], written: frozenset[Buffer], fragments: Fragments
    ) -> KernelBuilder:
        """Return a builder of one program."""

    def around(self, body: Stmt, builder: KernelBuilder) -> Stmt:
        """Return what runs ``body`` for all programs."""


class _ProgramLoop:
    """Programs as the iterations of one loop, which runs on all cores."""

    def __init__(self, launch: _Launch, index: DType, known: set[Var]) -> None:
        self.index, self.rank, self.target = index, launch.rank, launch.target
        self.sizes = [Var(f"grid_{n}", index) for n in range(self.rank - 1)]
        self.programs, self.program = Var("programs", index), Var("program", index)
        self.params = [*self.sizes, self.programs]
        known.update((*self.params, self.program))

    def builder(
        self, faults: Buffer, known: set[Var], written: frozenset[Buffer], fragments: Fragments
    ) -> KernelBuilder:
        """Return a builder of one program."""
        builder = KernelBuilder(self.index, faults, known, self.target.vector_lanes(DType("float32")))
        one, zero = const(1, self.index), const(0, self.index)
        sizes, programs, program = self.sizes, self.programs, self.program
        if self.rank == 1:
            builder.programs, builder.grid = (program, zero, zero), (programs, one, one)
        elif self.rank == 2:
            builder.programs = (program % sizes[0], program // sizes[0], zero)
            builder.grid = (sizes[0], programs // sizes[0], one)
        else:
            area = sizes[0] * sizes[1]
            builder.programs = (program % sizes[0], program // sizes[0] % sizes[1], program // area)
            builder.grid = (*sizes, programs // area)
        return builder

    def around(self, body: Stmt, builder: KernelBuilder) -> Stmt:
        """Return the loop over all programs, which run one after another where they change what others read."""
        order = "serial" if builder.programs_in_order else "parallel"
        return For(self.program, const(0, self.index), self.programs, order, body)


class _ThreadBlocks:
    """Programs as blocks of threads of a GPU, along up to three axes."""

    def __init__(self, launch: _Launch, index: DType, known: set[Var]) -> None:
        self.index, self.threads = index, launch.threads
        self.params = [Var(f"grid_{n}", index) for n in range(launch.rank)]
        self.numbers = [Var(f"program_{n}", index) for n in range(launch.rank)]
        known.update((*self.params, *self.numbers))
        self.name, self.asked, target = launch.source.name, launch.stages, launch.target
        self.aligned = launch.aligned
        capability = compute_capability(target.mcpu)
        nvidia = target.mcpu.startswith("sm_") or TARGET_KINDS[target.kind].simulated
        self.beside, self.machine = nvidia and capability >= FIRST_COPIES, f"{target.kind} ({target.mcpu})"
        self.room = block_shared_bytes(capability)

    def builder(
        self, faults: Buffer, known: set[Var], written: frozenset[Buffer], fragments: Fragments
    ) -> KernelBuilder:
        """Return a builder of one program."""
        stages, units = LoopStages(self.room), fragments if self.beside else None
        builder = ThreadedBuilder(
            self.index, faults, known, self.threads, written, stages, self.asked, units, self.aligned
        )
        rest = 3 - len(self.params)
        builder.programs = (*self.numbers, *[const(0, self.index)] * rest)
        builder.grid = (*self.params, *[const(1, self.index)] * rest)
        return builder

    def around(self, body: Stmt, builder: KernelBuilder) -> Stmt:
        """Return the loops on the axes of blocks, with values in registers where each thread needs its own alone."""
        assert isinstance(builder, ThreadedBuilder)
        body = own_registers(body, builder.nests)
        if self.beside:
            body = builder.stages.applied(body, {b.data for b in builder.written})
        if builder.left_out:
            warnings.warn(
                f"{self.name}: products do without matrix units, several times slower, as an array does not begin at a multiple "
                f"of {MULTIPLE} bytes; pass a copy of that view",
                stacklevel=6,
            )
        for wanted, given, size in builder.stages.fewer:
            warnings.warn(
                f"{self.name}: num_stages={wanted} takes {size} bytes of shared memory, and a block has {self.room} on "
                f"{self.machine}; the loop has {given}",
                stacklevel=6,
            )
        for number, blocks, tag in zip(
            self.numbers, self.params, ("blockIdx.x", "blockIdx.y", "blockIdx.z"), strict=False
        ):
            body = For(number, const(0, self.index), blocks, "thread_binding", body, tag)
        return body


_default: Target | None = None


def set_target(target: str | Target | None) -> None:
    """Run launches that name no target on this one from now on; None is this machine's processor."""
    global _default
    _default = None if target is None else _machine(target)


def _machine(target: str | Target | None) -> Target:
    """Returns the target of a launch: this machine's processor, or a GPU."""
    if target is None:
        return _default or Target.of("native")
    machine = Target.of(target)
    row = TARGET_KINDS[machine.kind] if machine.kind in TARGET_KINDS else None
    if not row.gpu if row is not None else machine.kind not in ("native", "llvm"):
        raise ValueError(f"kernels in blocks run on processors and GPUs, not on {machine.kind}")
    return machine


def _threads(target: Target, warps: int) -> int:
    """Returns how many threads of a GPU run one program, 0 for processors."""
    if target.kind not in TARGET_KINDS:
        return 0
    if warps & (warps - 1) or warps * WARP > MOST_THREADS:
        raise ValueError(f"num_warps={warps}; on GPUs it is a power of two up to {MOST_THREADS // WARP}")
    return warps * WARP


def _arrays_in(values: Iterable[Any]) -> Iterator[Any]:
    """Returns the arguments that are no numbers, in tuples and windows as well."""
    for x in values:
        if isinstance(x, tuple):
            yield from _arrays_in(x)
        elif not isinstance(x, (int, float, str, np.ndarray)):
            yield x.base if isinstance(x, TensorDescriptor) else x


def _named_parts(form: Any, names: Mapping[str, Any]) -> Any:
    """Returns the values of names in the form of a tuple."""
    return tuple([_named_parts(part, names) for part in form]) if isinstance(form, tuple) else names[form]


def _always(e: Any) -> Callable[[Any], Any]:
    return lambda _: e


def _memory(start: int, count: int, like: Any) -> Any:
    """Returns the elements from an address on as an array, which is used while the arrays that own them live."""
    holder = type(
        "_Held",
        (),
        {"__array_interface__": {"version": 3, "shape": (count,), "typestr": like.dtype.str, "data": (start, False)}},
    )
    return np.asarray(holder())


__all__ = [
    "CompiledKernel",
    "JitFunction",
    "cdiv",
    "constexpr",
    "constexpr_function",
    "jit",
    "next_power_of_2",
    "set_allocator",
    "set_target",
]
