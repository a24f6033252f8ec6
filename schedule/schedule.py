"""This module defines ``Schedule``: a function and the transformations applied to it, each proven legal.

``Schedule(func)`` holds an immutable module; each primitive replaces it by a new one and adds a line to the trace. The
primitives themselves live in :mod:`.primitives`; their documentation is that of the methods here.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..pages import card, code_html, folded
from ..tir.analysis.tree import blocks_below, symbols_of, tree_of, unique_names
from ..tir.arith.smt import solving
from ..tir.expr import Expr, Var
from ..tir.index_width import widened
from ..tir.stmt import Buffer, IRModule, PrimFunc
from ..tir.walk import vars_in
from .errors import ScheduleError, UnknownHandleError, nearest, unknown_handle
from .handles import PLACES, BlockRV, Handle
from .primitive import BUFFER_PARAMETERS, REGISTRY, Primitive, PrimitiveMethods, buffer_number, check_arguments
from .require.block_preconditions import find_block, find_loop
from .trace import Instruction, Trace, refs_in

if TYPE_CHECKING:
    from .method_signatures import MethodSignatures


if TYPE_CHECKING:  # the methods with their types; those of rules that register primitives later are not among them

    class _Methods(MethodSignatures, PrimitiveMethods): ...

else:
    _Methods = PrimitiveMethods


from collections.abc import Callable, Container

from ..tir.expr import BinaryOp, CmpOp, FloatImm, IntImm, make_binary
from ..tir.walk import transform
from .errors import bad_argument
from .trace import Ref, constant, formula_of


class Schedule(_Methods):
    """A ``Schedule`` transforms a function step by step.

    ``mod_or_func``: a PrimFunc (it becomes ``mod["main"]``) or an IRModule. ``seed`` makes sampling repeatable; without
    one it is drawn. ``debug_mask``: ``"none"``, or ``"all"`` to verify the function after every step.

    ``error_render_level``: ``"detail"`` shows the program in errors, ``"fast"`` and ``"none"`` leave it out.
    ``enable_check`` is there for TVM's sake: steps are always checked.

    Handles: ``get_block`` gives a :class:`BlockRV`, ``get_loops`` and ``split`` loop variables, the sampling primitives
    variables whose value ``get`` tells. A handle stays valid as long as the block or loop exists. A
    :class:`ScheduleError` leaves the schedule as it was.

    ``check``: ``"affine"``, or ``"smt"`` to ask a solver where the analysis of affine forms cannot decide. The solver
    accepts more steps, takes longer, and needs ``pip install 'tilewright[smt]'``.

    Blocks that share a name are numbered when the schedule is made (``C`` and ``C`` become ``C_1`` and ``C_2``). A
    function with more elements or larger indices than int32 can count gets int64 loops and axes.
    """

    def __init__(
        self,
        mod_or_func: PrimFunc | IRModule,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
        check: str = "affine",
    ) -> None:
        if isinstance(mod_or_func, PrimFunc):
            mod_or_func = IRModule({"main": mod_or_func})
        if not isinstance(mod_or_func, IRModule):
            raise TypeError(f"Schedule takes a PrimFunc or an IRModule, not {type(mod_or_func).__name__}")
        if debug_mask not in ("none", "all", 0, -1):
            raise ValueError(f"debug_mask {debug_mask!r}; it is 'none' or 'all'")
        if error_render_level not in ("detail", "fast", "none"):
            raise ValueError(f"error_render_level {error_render_level!r}; it is 'detail', 'fast' or 'none'")
        if check not in ("affine", "smt"):
            raise ValueError(f"check {check!r}; it is 'affine' or 'smt'")
        self._smt = check == "smt"
        with solving(self._smt):  # raises at once when the solver is not installed
            pass
        for name in mod_or_func:
            func = widened(unique_names(mod_or_func[name]))
            if func is not mod_or_func[name]:
                mod_or_func = mod_or_func.with_function(name, func)
        names = list(mod_or_func)
        if not names:
            raise ScheduleError("the module has no function", hint="give it one, e.g. IRModule.from_func(func)")
        self._mod = mod_or_func
        self._current = "main" if "main" in names else names[0] if len(names) == 1 else None
        self._insts: list[Instruction] = []
        self._handles = HandleTable()
        self._shows_ir = error_render_level == "detail"
        self._seed = secrets.randbits(63) if seed is None else int(seed)
        self._rng: np.random.Generator | None = None
        self._check = debug_mask in ("all", -1)

    # -- what it holds ---------------------------------------------------------------------------------------------

    @property
    def mod(self) -> IRModule:
        """Return the module as it is now."""
        return self._mod

    @property
    def func(self) -> PrimFunc:
        """Return the function being worked on: ``main``, the only one, or the one that ``work_on`` chose.

        ScheduleError is raised when the module has several functions, none of them is ``main``, and none was chosen.
        """
        return self._mod[self._chosen()]

    @property
    def func_working_on(self) -> str | None:
        """Return the name of that function in the module; None when none was chosen yet."""
        return self._current

    def _chosen(self) -> str:
        if self._current is None:
            raise ScheduleError(
                f"the module has {len(self._mod.functions)} functions ({', '.join(self._mod)}), and it was not said which "
                "to work on",
                hint="call work_on(name), or give func_name to get_block",
            )
        return self._current

    @property
    def trace(self) -> Trace:
        """Return the steps that were applied so far."""
        return Trace(tuple(self._insts))

    def get(self, rv: Any) -> Any:
        """Return the Block, For or number that a handle stands for."""
        if isinstance(rv, BlockRV):
            return find_block(self._tree_with(rv), self._block_name(rv)).block
        value = self._resolve(rv)
        if isinstance(value, Var) and value not in PLACES:
            tree = self._tree_with(value)
            return find_loop(tree, value) if rv not in self._handles.values or value in tree.loops else value
        return value

    def remove_rv(self, rv: Any) -> None:
        """Forget a handle, so that using it is an error from now on. The block, loop or number itself stays."""
        self._handles.remove(rv)

    def get_sblock(self, name: str, func_name: str | None = None) -> BlockRV:
        """Return ``get_block`` by its newer name."""
        return self.get_block(name, func_name)

    def can_decompose_padding(self, block: BlockRV | str, loop: Var) -> bool:
        """Return whether ``decompose_padding`` applies."""
        before = self.snapshot()
        try:
            self.decompose_padding(block, loop)
        except ScheduleError:
            return False
        self.restore(before)
        return True

    def show(self) -> None:
        """Print the module and, as Python, the trace."""
        print(self.func.script() if len(self._mod.functions) == 1 else self._mod.script())
        if self._insts:
            print("\n# how it came to be\n" + self.trace.as_python())

    def _repr_html_(self) -> str:
        return schedule_html(self)

    def __repr__(self) -> str:
        return f"Schedule({self._current}, {len(self._insts)} steps)"

    # -- copies and randomness -------------------------------------------------------------------------------------

    def copy(self) -> Schedule:
        """Return an independent schedule with the same function, handles and trace; its random numbers are forked."""
        new = self.snapshot()
        new._seed, new._rng = self.fork_seed(), None
        return new

    def snapshot(self) -> Schedule:
        """Return a state for :meth:`restore`: a copy that will draw the same random numbers."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._insts, new._handles = self._insts.copy(), self._handles.copy()
        if self._rng is not None:
            new._rng = np.random.default_rng(0)
            new._rng.bit_generator.state = self._rng.bit_generator.state
        return new

    def restore(self, earlier: Schedule) -> None:
        """Go back to the state that :meth:`snapshot` returned."""
        self.__dict__.update(earlier.snapshot().__dict__)

    def seed(self, seed: int) -> None:
        """Restart the random numbers from ``seed``."""
        self._seed, self._rng = int(seed), None

    def fork_seed(self) -> int:
        """Return a seed for a schedule that is to draw other numbers than this one."""
        return int(self.rng.integers(1 << 62))

    @property
    def rng(self) -> np.random.Generator:
        """Return the source of randomness of the sampling primitives."""
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        return self._rng

    # -- applying --------------------------------------------------------------------------------------------------

    def apply_named(self, step: Primitive, arguments: Mapping[str, Any]) -> Any:
        """Apply a primitive to arguments given by name; omitted ones have their defaults."""
        return self._apply(step, step.complete(arguments))

    def _apply(self, step: Primitive, arguments: dict[str, Any]) -> Any:
        func: PrimFunc | None = None
        before: Schedule | None = None
        renamed: Mapping[str, str] = {}
        decision = None
        try:
            name = self._function_of(arguments)
            func = self._mod[name]
            before = self._meet(arguments, name)
            objects = [key for key, value in arguments.items() if isinstance(value, Buffer)]
            arguments = {**arguments, **{key: self._without_name(key, arguments[key], arguments) for key in objects}}
            if step.prepare is not None:
                settled = {key: self._settled(value) for key, value in arguments.items()}
                arguments = {**arguments, **step.prepare(func, **settled)}
                before = before or self._meet(arguments, name)
            called = {key: self._resolve(value) for key, value in arguments.items()}
            called = check_arguments(step.function, called)
            recorded = {
                key: self._handles.record(self._without_name(key, value, arguments)) for key, value in arguments.items()
            }
            with solving(self._smt):
                if step.kind == "rewrite":
                    new, outputs, renamed = _three(step.call(func, called))
                elif step.kind == "query":
                    new, outputs = func, step.call(func, called)
                else:
                    new = func
                    decision, outputs = step.call(func, called, rng=self.rng)
            if self._check and new is not func:
                _verify(new)
        except BaseException as error:
            if before is not None:
                self.restore(before)
            if isinstance(error, ScheduleError):
                if not error.primitive:
                    error.primitive, error.arguments = step.name, step.said(arguments)
                    if isinstance(error, UnknownHandleError):
                        error.hint = "; ".join(
                            [*self._what_became_of(arguments), *([error.hint] if error.hint else [])]
                        )
                error.func = error.func or func if self._shows_ir else None
            raise
        if new is not func:
            self._mod = self._mod.with_function(name, new)
        self._handles.renamed.update(renamed)
        if step.name == "work_on":
            self._current = name
        if step.kind == "sample":
            recorded.pop("decision", None)
        outputs, names = self._name_outputs(step, outputs, name)
        self._insts.append(Instruction(step.name, recorded, names, self._handles.record(decision)))
        return outputs

    def _what_became_of(self, arguments: Any) -> list[str]:
        """Return which step replaced each loop among the arguments that is no longer there, and by what."""
        found = []
        handles = {name: handle for handle, name in self._handles.names.items()}
        for value in _leaves(arguments):
            ref = self._handles.names.get(value) if isinstance(value, Var) else None
            if ref is None:
                continue
            steps = [
                i for i in self._insts if i.primitive.kind == "rewrite" and ref in refs_in(list(i.arguments.values()))
            ]
            made = [getattr(handles.get(name), "name", name) for name in (steps[-1].output_names if steps else ())]
            if made:
                found.append(f"{steps[-1].name} replaced {value.name} by {', '.join(made)}")
        return found

    def _name_outputs(self, step: Primitive, outputs: Any, func_name: str) -> tuple[Any, Any]:
        if outputs is None:
            return None, None
        if isinstance(outputs, (list, tuple)):
            pairs = [self._name_output(step, out, func_name) for out in outputs]
            return [handle for handle, _ in pairs], [name for _, name in pairs]
        return self._name_output(step, outputs, func_name)

    def _name_output(self, step: Primitive, out: Any, func_name: str) -> tuple[Any, str]:
        table = self._handles
        if isinstance(out, BlockRV):
            prefix = "b"
            if len(self._mod.functions) > 1:
                out = BlockRV(out.name, func_name)
            table.renamed.pop(out.name, None)
        elif isinstance(out, Var) and step.kind != "sample":
            prefix = "l"
            if out not in tree_of(self._mod[func_name]).loops:
                prefix, table.values[out] = "v", out
        else:
            prefix = "l" if step.kind == "sample" and self._is_place(out, func_name) else "v"
            out = table.sampled(out, prefix)
        return out, table.add(out, prefix)

    def _is_place(self, out: Any, func_name: str) -> bool:
        return isinstance(out, Var) and (out in PLACES or out in tree_of(self._mod[func_name]).loops)

    # -- arguments -------------------------------------------------------------------------------------------------

    def _tree_with(self, rv: Handle) -> Any:
        return tree_of(self._mod[self._function_of([rv])])

    def _function_of(self, arguments: Any) -> str:
        """Return the name of the function that the handles among the arguments belong to."""
        asked = arguments.get("func_name") if isinstance(arguments, Mapping) else None
        if asked is not None:
            if not isinstance(asked, str) or asked not in self._mod:
                raise unknown_handle(f"the module has no function {asked!r}", hint=nearest(str(asked), self._mod))
            return str(asked)
        if len(self._mod.functions) == 1:
            return self._chosen()
        for value in _leaves(arguments):
            if isinstance(value, BlockRV) and value.func_name in self._mod:
                return value.func_name
            if isinstance(value, Var) and value not in self._handles.values:
                for name in self._mod:
                    if value in tree_of(self._mod[name]).loops:
                        return name
        return self._chosen()

    def _block_name(self, rv: BlockRV) -> str:
        function = rv.func_name if rv.func_name in self._mod else self._chosen()
        return self._handles.block_name(rv, tree_of(self._mod[function]).blocks)

    def _resolve(self, value: Any) -> Any:
        return self._handles.resolve(value, self._block_name)

    def _settled(self, value: Any) -> Any:
        """Return an argument as ``prepare`` receives it.

        A block is given by its name. In the results of a function of indices, sampled numbers are replaced by their
        values.
        """
        if isinstance(value, BlockRV):
            return self._block_name(value)
        if not callable(value):
            return value

        @functools.wraps(value)
        def settled(*args: Any, **named: Any) -> Any:
            return self._resolve(value(*args, **named))

        return settled

    def _without_name(self, parameter: str, value: Any, arguments: Mapping[str, Any]) -> Any:
        """Return the number of a buffer in place of the buffer or its name. A trace holds no names of buffers."""
        if parameter not in BUFFER_PARAMETERS or not isinstance(value, (str, Buffer)):
            return value
        block = self.get(BlockRV(self._resolve(arguments["block"])))
        number = buffer_number(parameter, value, block, arguments.get("buf_type"))
        if isinstance(number, Buffer):
            raise ScheduleError(
                f"block {block.name_hint!r} does not access the given buffer {number.name} so",
                hint="buffers change with the steps: take it from sch.get(block).reads or .writes now, or give its name",
            )
        return number

    def _meet(self, arguments: Any, func_name: str) -> Schedule | None:
        """Record queries for the loops and sizes among the arguments that no earlier step of this schedule returned.

        The trace can then name them. The result is the state to restore if the step fails.
        """
        tree = None
        before = None
        for value in _leaves(arguments):
            if not isinstance(value, Expr) or value in self._handles.names:
                continue
            for var in vars_in(value):
                if var in self._handles.names:
                    continue
                tree = tree or tree_of(self._mod[func_name])
                before = before or self.snapshot()
                if var in tree.loops:
                    below = next(iter(blocks_below(tree.loops[var].body)), None)
                    if below is not None:
                        block = BlockRV(below.block.name_hint, func_name if len(self._mod.functions) > 1 else "")
                        self._apply(REGISTRY["get_loops"], {"block": block})
                elif any(size is var for size in symbols_of(tree.func)):
                    symbols = symbols_of(tree.func)
                    alone = sum(size.name == var.name for size in symbols) == 1
                    self._apply(REGISTRY["get_symbol"], {"name": var.name if alone else symbols.index(var)})
        return before


def _three(result: Any) -> tuple[PrimFunc, Any, Mapping[str, str]]:
    if isinstance(result, PrimFunc):
        return result, None, {}
    if len(result) == 2:
        return result[0], result[1], {}
    return result


def _leaves(value: Any) -> Any:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        yield value
        return
    for item in value:
        yield from _leaves(item)


def _verify(func: PrimFunc) -> None:
    from ..tir.verify import verify  # late: only a debugging schedule needs it

    verify(func)


def schedule_html(sch: Schedule) -> str:
    """Returns the program and, folded, its trace as HTML."""
    text = sch.func.script() if len(sch.mod.functions) == 1 else sch.mod.script()
    count = len(sch.trace)
    steps = folded(f"how it came to be: {count} steps", code_html(sch.trace.as_python(), fold=False)) if count else ""
    return card("Schedule", code_html(text), steps, note=f"{count} steps" if count else "as written")


class HandleTable:
    """A ``HandleTable`` tells the names and values of the handles that a schedule has given out.

    ``names`` are the names in the trace, ``values`` those of sampled variables, ``renamed`` maps old block names to
    present ones, and ``removed`` are the handles that ``remove_rv`` forgot.
    """

    __slots__ = ("count", "names", "removed", "renamed", "values")

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.values: dict[Var, int | float | Expr | None] = {}
        self.renamed: dict[str, str] = {}
        self.removed: frozenset[Any] = frozenset()
        self.count = 0

    def copy(self) -> HandleTable:
        """Return an independent table with the same contents."""
        new = HandleTable()
        new.names, new.values, new.renamed = self.names.copy(), self.values.copy(), self.renamed.copy()
        new.removed, new.count = self.removed, self.count
        return new

    def add(self, handle: Any, prefix: str) -> str:
        """Return the name in the trace that a new output gets."""
        name = f"{prefix}{self.count}"
        self.count += 1
        self.names[handle] = name
        self.removed -= {handle}
        return name

    def sampled(self, value: Any, prefix: str) -> Var:
        """Return a new variable that stands for a value."""
        var = Var(f"{prefix}{self.count}")
        self.values[var] = value
        return var

    def remove(self, handle: Any) -> None:
        """Forget a handle, so that using it is an error from now on."""
        if handle not in self.names:
            raise unknown_handle(
                f"{handle} is not a handle of this schedule", hint="get_block, get_loops and the steps give handles"
            )
        self.removed |= {handle}

    def block_name(self, rv: BlockRV, blocks: Container[str]) -> str:
        """Return the present name of a block among ``blocks``."""
        if rv in self.removed:
            raise unknown_handle(f"the handle of block {rv.name!r} was removed", hint="ask get_block again")
        name = rv.name
        while name not in blocks and name in self.renamed:
            name = self.renamed[name]
        return name

    def name_of(self, var: Var) -> str:
        """Return the name in the trace of a loop, a sampled number or a size."""
        try:
            return self.names[var]
        except KeyError:
            raise unknown_handle(
                f"{var.name} is neither a loop of this function, nor sampled, nor a size of it",
                hint="get_loops and split give loops, the sampling primitives numbers, get_symbol sizes",
            ) from None

    def resolve(self, value: Any, block_name: Callable[[BlockRV], str]) -> Any:
        """Return an argument as the primitive's function receives it: names for blocks, values for sampled numbers."""
        if value is None or isinstance(value, (str, int, float)):
            return value
        if isinstance(value, BlockRV):
            return block_name(value)
        if isinstance(value, Var):
            if value in self.removed:
                raise unknown_handle(
                    f"the handle {self.names.get(value, value.name)} was removed",
                    hint="ask get_loops or get_block again after a step that replaces loops",
                )
            return self.values.get(value, value)
        if isinstance(value, IntImm):
            return bool(value.value) if value.dtype == "bool" else value.value if value.dtype == "int32" else value
        if isinstance(value, Expr):
            try:
                value = transform(value, self._value_of, _fold)
            except ZeroDivisionError:
                raise bad_argument("a factor divides by zero", hint="sizes are at least 1") from None
            return value.value if isinstance(value, IntImm) and value.dtype == "int32" else value
        if isinstance(value, (list, tuple)):
            return [self.resolve(item, block_name) for item in value]
        if isinstance(value, dict):
            return {key: self.resolve(item, block_name) for key, item in value.items()}
        return value.item() if isinstance(value, np.generic) else value

    def _value_of(self, e: Any) -> Any:
        if not isinstance(e, Var) or e not in self.values:
            return None
        value = self.values[e]
        return IntImm(value) if isinstance(value, int) else value

    def record(self, value: Any) -> Any:
        """Return an argument as the trace keeps it."""
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, (float, np.floating)):
            return float(value)
        if isinstance(value, BlockRV):
            known = self.names.get(value)
            return value.name if known is None else Ref(known)
        if isinstance(value, Var):
            return Ref(self.name_of(value))
        if isinstance(value, (IntImm, FloatImm)):
            return constant(value)
        if isinstance(value, Expr):
            try:
                return formula_of(value, self.name_of)
            except TypeError as error:
                raise bad_argument(str(error), hint="give sampled numbers, or sums and products of them") from None
        if isinstance(value, (list, tuple)):
            return [self.record(item) for item in value]
        if isinstance(value, Mapping):
            return {str(key): self.record(item) for key, item in value.items()}
        raise bad_argument(
            f"a trace cannot hold {value!r} ({type(value).__name__})",
            hint="give numbers, texts, lists or dictionaries of these, handles, and sizes made of them",
        )


def _fold(e: Any) -> Any:
    return make_binary(type(e), e.a, e.b) if isinstance(e, BinaryOp) and not isinstance(e, CmpOp) else None
