"""The parser's core: the text with its limits and errors, and what all parts of the parser share.

:class:`Source` is the text; :class:`ParseError` shows a place in it.

``ast.parse`` may overflow the C stack on deeply nested text (CPython issues 95185 and 126711), so :func:`check_text`
counts length, nesting, operators per logical line and chains of ``elif`` before Python's own parser reads the text.

:class:`Parser` holds scopes and open blocks, converts to expressions, and makes errors with their place. What a class of
Python's ``ast`` or a word of ``T`` means is a function of the parser and the node, in :class:`ParserTables`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import vocabulary
from ..arith import Analyzer
from ..expr import BufferLoad, Expr, IntImm, IterVar, Range, StringImm, Var, convert, max_, min_, plain
from ..expr.intrinsics.number_operations import abs_
from ..stmt import Block, Buffer, BufferRegion, Evaluate, MatchBufferRegion, SeqStmt, Stmt
from ..vocabulary import TypeWord, Word, type_word

_WIDTH = 160
"""The most columns of the excerpt."""


class Source:
    """Represents a text with its file name and its first line number in that file."""

    def __init__(self, text: str, filename: str = "<text>", first_line: int = 1) -> None:
        self.text = text
        self.filename = filename
        self.first_line = first_line
        self._lines: list[str] | None = None

    def line(self, number: int) -> str:
        """Return a line of the text, counted from 1."""
        if self._lines is None:
            self._lines = self.text.splitlines()
        return self._lines[number - 1] if 0 < number <= len(self._lines) else ""

    def error(self, message: str, node: ast.AST | None) -> ParseError:
        """Return a ParseError with ``message`` at ``node``."""
        return ParseError(
            message,
            self,
            getattr(node, "lineno", 1),
            getattr(node, "col_offset", 0),
            getattr(node, "end_lineno", None),
            getattr(node, "end_col_offset", None),
        )


class ParseError(ValueError):
    """Raised for a text that is not a TIR program.

    It has ``message``, ``line`` and ``column`` (both from 1), and an excerpt with a caret.
    """

    def __init__(
        self,
        message: str,
        source: Source,
        lineno: int,
        col_offset: int,
        end_lineno: int | None = None,
        end_col_offset: int | None = None,
    ) -> None:
        text = source.line(lineno).encode(errors="replace").decode()  # a lone surrogate has no encoding
        # The offsets of Python's ast count bytes.
        start = len(text.encode()[:col_offset].decode(errors="ignore"))
        end = len(text)
        if end_lineno == lineno and end_col_offset is not None:
            end = len(text.encode()[:end_col_offset].decode(errors="ignore"))
        self.message = message
        self.line = lineno + source.first_line - 1
        self.column = start + 1
        shift = max(0, min(start - _WIDTH // 2, len(text) - _WIDTH))  # the part of a long line that is shown
        text = text[shift : shift + _WIDTH]
        start, end = start - shift, min(end - shift, len(text))
        number = str(self.line)
        super().__init__(
            f"{message}\n"
            f"  --> {source.filename}:{self.line}:{self.column}\n"
            f"{' ' * len(number)} |\n"
            f"{number} | {text}\n"
            f"{' ' * len(number)} | {' ' * start}{'^' * max(end - start, 1)}"
        )


MAX_CHARACTERS = 8_000_000
MAX_NESTING = 80
MAX_INDENT = 400
MAX_OPERATORS = 60_000
USUAL_OPERATORS = 4_000
"""A text with more operators in one line is parsed on a large stack."""
MAX_PREFIXES = 60
MAX_ELIFS = 200

_TOKEN = re.compile(
    r"""
      (?P<string>\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<comment>\#[^\n]*)
    | (?P<join>\\\n)
    | (?P<line>\n[ \t\f]*)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<prefix>~|\b(?:not|lambda|await)\b)
    | (?P<operator>[-+*/%@&|^<>=!.,:]+|\b(?:and|or|if|else|for|in|is)\b)
    | (?P<elif>\belif\b)
    | (?P<word>\w+)
    """,
    re.VERBOSE | re.DOTALL,
)


def check_text(source: Source) -> int:
    """Return the largest number of operators in one line; ParseError when the text exceeds a limit."""
    text = source.text

    def fail(what: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        raise ParseError(f"the text is refused: {what}", source, line, at - (text.rfind("\n", 0, at) + 1))

    if len(text) > MAX_CHARACTERS:
        fail(f"{len(text)} characters, at most {MAX_CHARACTERS} are allowed", 0)
    if "\0" in text:
        fail("it holds a NUL character", text.index("\0"))
    depth = operators = prefixes = most = 0
    elifs: dict[int, int] = {}
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            prefixes = 0
        elif kind == "operator":
            operators += 1
            token = match[0]
            # "- - - x" nests like "not not not x", and so do lambdas.
            prefixes = prefixes + len(token) if token[-1] in "+-" else prefixes if token == ":" else 0
        elif kind == "open":
            depth += 1
            operators += 1
            prefixes = 0
            if depth > MAX_NESTING:
                fail(f"more than {MAX_NESTING} brackets inside one another", match.start())
        elif kind == "close":
            depth = max(depth - 1, 0)
        elif kind == "prefix":
            prefixes += 1
            operators += 1
        elif kind == "line" and depth == 0:
            operators = prefixes = 0
            problem = _line_problem(elifs, len(match[0]) - 1, text[match.end() : match.end() + 4])
            if problem:
                fail(problem, match.end())
        most = max(most, operators)
        if operators > MAX_OPERATORS:
            fail(f"more than {MAX_OPERATORS} operators in one line", match.start())
        if prefixes > MAX_PREFIXES:
            fail(f"more than {MAX_PREFIXES} prefix operators in a row", match.start())
    return most


def _line_problem(elifs: dict[int, int], indent: int, beginning: str) -> str:
    """Return why a line that begins so is refused, or ""; count its ``elif`` in ``elifs``, by indent."""
    if beginning[:1] in ("\n", "#", ""):
        return ""
    for other in [k for k in elifs if k > indent]:
        del elifs[other]
    if beginning == "elif":
        elifs[indent] = elifs.get(indent, 0) + 1
    elif beginning != "else":
        elifs.pop(indent, None)
    if indent > MAX_INDENT:
        return f"indented by more than {MAX_INDENT}"
    return f"more than {MAX_ELIFS} elif in a row" if elifs.get(indent, 0) > MAX_ELIFS else ""


_LIMIT = 1 << 128
_MAX_ITEMS = 100_000


@dataclass(frozen=True, slots=True)
class MetaVar:
    """Represents the value of ``T.meta_var``, which is used itself, without a variable."""

    value: Any


@dataclass(frozen=True, slots=True)
class BufferMethod:
    """Represents a method of a buffer such as ``A.vload``, before its call."""

    buffer: Buffer
    name: str


@dataclass
class Frame:
    """Holds the declarations of a block, or of the function around all blocks, so far."""

    is_function: bool = False
    axes: list[IterVar] = field(default_factory=list)
    values: list[Expr] = field(default_factory=list)
    predicate: Expr | None = None
    reads: tuple[BufferRegion, ...] | None = None
    writes: tuple[BufferRegion, ...] | None = None
    annotations: dict[str, Any] = field(default_factory=dict)
    allocs: list[Buffer] = field(default_factory=list)
    matches: list[MatchBufferRegion] = field(default_factory=list)
    init: Stmt | None = None
    has_init: bool = False
    params: dict[Var, Buffer] = field(default_factory=dict)


class Namespace:
    """Represents ``T`` or ``I`` in a text; its attributes are words."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def lookup(self, word: str) -> Any:
        """Return the word; AttributeError when there is none."""
        if self.name == "T" and word not in ("prim_func", "ir_module"):
            return vocabulary.word_named(word)
        return Namespace(f"{self.name}.{word}")

    def __repr__(self) -> str:
        return self.name


def python_binary(op: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return ``op`` of two Python values. Numbers and sequences have a limited size."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        if isinstance(a, int) and isinstance(b, int):
            if op is operator.pow and (abs(b) > 128 or (abs(a) > 1 and abs(a).bit_length() * abs(b) > 256)):
                raise ValueError(f"{a} ** {b} is too large")
            if op is operator.lshift and b > 128:
                raise ValueError(f"{a} << {b} is too large")
        out = op(a, b)
        if isinstance(out, int) and abs(out) >= _LIMIT:
            raise ValueError("the constant is too large")
        return out
    if op is operator.add and type(a) is type(b) and isinstance(a, (list, tuple, str)):
        if len(a) + len(b) > _MAX_ITEMS:
            raise ValueError("the sequence is too long")
        return a + b
    raise TypeError(f"{type(a).__name__} and {type(b).__name__} do not support this operator")


def _range(*args: Any) -> range:
    out = range(*[operator.index(a) for a in args])
    if len(out) > _MAX_ITEMS:
        raise ValueError(f"range of {len(out)} items")
    return out


def _extreme(on_exprs: Callable[[Any, Any], Any], on_numbers: Callable[..., Any]) -> Callable[..., Any]:
    def pick(*args: Any) -> Any:
        items = list(args[0]) if len(args) == 1 else list(args)
        if all(isinstance(i, (int, float)) for i in items):
            return on_numbers(items)
        out = items[0]
        for item in items[1:]:
            out = on_exprs(out, item)
        return out

    return pick


def _sum(items: Any) -> Any:
    out: Any = 0
    for k, item in enumerate(list(items)):
        out = out + item if k else item
    return out


def _abs(x: Any) -> Any:
    return abs(x) if isinstance(x, (int, float)) else abs_(x)


def _float(x: Any) -> float:
    return float(x)


def _int(x: Any) -> int:
    if not isinstance(x, (int, float, str)):
        raise TypeError("int() takes a constant here; convert values with T.Cast or .astype")
    return int(x)


BUILTINS: dict[str, Any] = {
    "abs": _abs, "bool": bool, "enumerate": lambda x: list(enumerate(x)), "float": _float, "int": _int, "len": len,
    "list": list, "max": _extreme(max_, max), "min": _extreme(min_, min), "range": _range,
    "reversed": lambda x: list(reversed(x)), "str": str, "sum": _sum, "tuple": tuple,
    "zip": lambda *x: list(zip(*x, strict=False)),
    "True": True, "False": False, "None": None,
}  # fmt: skip
"""The builtin names of Python that a text may use."""


Wrapper = Callable[[Stmt], Stmt]
"""Builds a statement around the statements that follow it in the same body."""


@dataclass(frozen=True)
class ParserTables:
    """Holds the functions that parse expressions and statements, by the class of the node, and words that make
    values."""

    expressions: Mapping[type, Parse]
    statements: Mapping[type, Parse]
    words: Mapping[str, Parse]


Parse = Callable[["Parser", Any], Any]
"""Returns what a node means: the value of an expression; the statement or the wrapper of a statement, or None."""


class Parser:
    """Keeps scopes of names and returns values of the kind that is asked for.

    ``outer`` looks up names that the text itself does not define. ``frames`` are the open blocks; the first is the
    function's.
    """

    def __init__(self, source: Source, outer: Callable[[str], Any], tables: ParserTables) -> None:
        self.source = source
        self.tables = tables
        self.frames: list[Frame] = []
        self.loops: dict[Var, Range] = {}
        self.roots: dict[Stmt, Block] = {}  # top-level blocks without axes, each in the form that it has as the root
        self.thread_tags: dict[Var, str] = {}  # of T.env_thread
        self.outer = outer
        self.scopes: list[dict[str, Any]] = [{}]
        self.analyzer: Analyzer | None = None
        self.named_sizes: dict[str, Var] = {}  # sizes that texts in shapes name, in this function
        self.size_dtypes: dict[str, str] = {}  # sizes that this function's body declares
        self.allocated: dict[Var, Buffer] = {}  # by pointer: what T.allocate made
        self.named_values: set[Var] = set()  # variables of LetStmt

    def error(self, message: str, node: ast.AST | None) -> ParseError:
        """Return a ParseError at ``node``."""
        return self.source.error(message, node)

    def lookup(self, name: str, node: ast.AST) -> Any:
        """Return the value of ``name``."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        value = self.outer(name)
        if value is NotImplemented:
            if name in BUILTINS:
                return BUILTINS[name]
            raise self.error(f"`{name}` is not defined here", node)
        if isinstance(value, IterVar):
            return value.var
        return BUILTINS["range"] if value is range else value

    def define(self, name: str, value: Any) -> None:
        """Define ``name`` in the innermost scope."""
        self.scopes[-1][name] = value

    def eval(self, node: ast.AST) -> Any:
        """Return the value of an expression: a Python value, an expression node, a buffer, a word of ``T`` …"""
        parse = self.tables.expressions.get(type(node))
        if parse is None:
            raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
        return parse(self, node)

    def word(self, name: str, node: ast.Call) -> Any:
        """Return the value of a call of a word that is not a plain function."""
        parse = self.tables.words.get(name)
        if parse is None:
            raise self.error(f"T.{name} cannot stand here", node)
        return parse(self, node)

    def body(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a list of statements. A statement with a scope (a binding, an allocation) contains the rest of the
        list."""
        out: list[Stmt] = []
        scoped: list[tuple[int, Wrapper]] = []
        for node in nodes:
            parse = self.tables.statements.get(type(node))
            if parse is None:
                raise self.error(f"{type(node).__name__} has no meaning in TIR", node)
            made = parse(self, node)
            if isinstance(made, Stmt):
                out.append(made)
            elif made is not None:
                scoped.append((len(out), made))
        for start, wrap in reversed(scoped):
            out[start:] = [wrap(_sequence(out[start:]))]
        return _sequence(out)

    def nested(self, nodes: list[ast.stmt]) -> Stmt:
        """Parse a body in a scope of its own."""
        self.scopes.append({})
        out = self.body(nodes)
        self.scopes.pop()
        return out

    def frame(self, node: ast.AST, what: str) -> Frame:
        """Return the innermost open block; ParseError outside all blocks."""
        if not self.frames or self.frames[-1].is_function:
            raise self.error(f"{what} belongs in a block", node)
        return self.frames[-1]

    def attributes(self, node: ast.expr) -> dict[str, Any]:
        """Parse a dict of attributes, with constants as Python values."""
        value = self.eval(node)
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise self.error("a dict with texts as keys is needed", node)
        return {k: _plain(v) for k, v in value.items()}

    def guarded(self, node: ast.AST, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``f(*args)``; its errors are reported at ``node``."""
        try:
            return f(*args, **kwargs)
        except ParseError:
            raise
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as e:
            raise self.error(str(e) or type(e).__name__, node) from e

    def expr(self, node: ast.AST, dtype: str | None = None) -> Expr:
        """Return the value as an expression; a plain number takes ``dtype``, when given."""
        return self.as_expr(self.eval(node), node, dtype)

    def as_expr(self, value: Any, node: ast.AST, dtype: str | None = None) -> Expr:
        """Return ``value`` as an expression."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, Buffer):
            if value.ndim == 0:
                return BufferLoad(value, ())
            raise self.error(f"buffer {value.name} has no value of its own; index it", node)
        if isinstance(value, MetaVar):
            value = value.value
        if value is None or isinstance(value, (Word, TypeWord, Namespace, BufferMethod, tuple, list, dict)):
            raise self.error(f"a value is needed, not {value!r}", node)
        return self.guarded(node, convert, value, dtype)

    def condition(self, node: ast.AST) -> Expr:
        """Return the value as a bool expression."""
        e = self.expr(node)
        if not e.dtype.is_bool:
            raise self.error(f"a condition must be bool, this is {e.dtype}", node)
        return e

    def number(self, node: ast.AST) -> int:
        """Return the value of a constant integer."""
        value = self.eval(node)
        if isinstance(value, IntImm):
            return value.value
        if not isinstance(value, int):
            raise self.error("a constant integer is needed", node)
        return value

    def string(self, node: ast.AST) -> str:
        """Return the value of a constant text."""
        value = self.eval(node)
        if isinstance(value, StringImm):
            return value.value
        if not isinstance(value, str):
            raise self.error("a text is needed", node)
        return value

    def dtype(self, node: ast.AST) -> str:
        """Return a data type, written as text or as a word such as ``T.int8``."""
        value = self.eval(node)
        name = value.dtype if isinstance(value, TypeWord) else value
        if not isinstance(name, str):
            raise self.error("a data type is needed", node)
        self.guarded(node, type_word, name)
        return name

    def items(self, nodes: list[ast.expr]) -> list[Any]:
        """Return the values of several expressions; ``*rest`` adds each of its items."""
        out: list[Any] = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                value = self.eval(n.value)
                if not isinstance(value, (list, tuple, range)):
                    raise self.error("only a list or tuple can be spread with *", n)
                out.extend(value)
            else:
                out.append(self.eval(n))
        return out

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        """Return the values of the keyword arguments."""
        if any(k.arg is None for k in node.keywords):
            raise self.error("** has no meaning in TIR", node)
        return {str(k.arg): self.eval(k.value) for k in node.keywords}

    def arguments(self, node: ast.Call, *names: str) -> dict[str, ast.expr]:
        """Return the argument expressions by name; ParseError for too many, unknown or repeated ones."""
        if len(node.args) > len(names):
            raise self.error(f"{len(node.args)} arguments, at most {len(names)}: {', '.join(names)}", node)
        out = dict(zip(names, node.args, strict=False))
        for k in node.keywords:
            if k.arg not in names or k.arg in out:
                known = "given twice" if k.arg in out else f"unknown; there are {', '.join(names)}"
                raise self.error(f"argument `{k.arg}` is {known}", k.value)
            out[k.arg] = k.value
        return out

    def unpack(self, target: ast.AST, value: Any) -> None:
        """Bind a target of names to a value."""
        if isinstance(target, ast.Name):
            self.define(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (list, tuple)):
            if len(target.elts) != len(value):
                raise self.error(f"{len(value)} values for {len(target.elts)} names", target)
            for t, v in zip(target.elts, value, strict=True):
                self.unpack(t, v)
        else:
            raise self.error("names are needed here", target)


def _sequence(stmts: list[Stmt]) -> Stmt:
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.seq) if isinstance(s, SeqStmt) else flat.append(s)
    if not flat:
        return Evaluate(IntImm(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def _plain(value: Any) -> Any:
    """Return int32 and bool constants of attributes as Python values."""
    if isinstance(value, IntImm) and value.dtype not in ("int32", "bool"):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return plain(value)
