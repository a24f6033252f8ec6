"""Words for microcontrollers: memory is a static workspace, and no C library is needed beyond memcpy. Functions of the
C library are written out or refused, and dot products of bytes use the DSP instructions of Cortex-M4 and later."""

from __future__ import annotations

from typing import Any

from ...tir.expr import BufferLoad, Call, Expr
from ...tir.stmt import Buffer
from ..backend.emitter import expand_dot
from .inline_functions import CEmitError, scalar_type
from .portable_words import PortableScope

STACK_BYTES = 256
"""The largest array on the stack; larger ones are in the workspace."""


class Workspace:
    """The static memory of a source file, which its functions use one after the other. It is an array for each type of
    elements, so that no memory has two types."""

    def __init__(self) -> None:
        self.used: dict[str, int] = {}
        self.elements: dict[str, int] = {}
        self.bytes = 0

    def take(self, kind: str, elements: int, size: int) -> int:
        """Return the first of some elements, which are in use until :meth:`give`; ``size`` is one element's."""
        at = self.used.get(kind, 0)
        self.used[kind] = at + elements
        more = max(0, at + elements - self.elements.get(kind, 0))
        self.elements[kind] = self.elements.get(kind, 0) + more
        self.bytes += more * size
        return at

    def give(self, kind: str, at: int) -> None:
        """Give elements back, and all that were taken after them."""
        self.used[kind] = at

    def text(self) -> str:
        """Return the declarations of the arrays."""
        return "".join(f"static {kind} tw_workspace_{kind}[{n}];\n" for kind, n in self.elements.items())


class FreestandingScope(PortableScope):
    """The state of a writer for a machine without a heap and a mathematical library."""

    workspace: Workspace
    places: dict[str, tuple[str, int]]


def scratch_memory(em: FreestandingScope, buffer: Buffer, elements: int | None) -> str:
    """Returns the name of a pointer into the workspace. :class:`CEmitError` for a size that only the call knows."""
    if elements is None:
        raise CEmitError(
            f"{em.unit.name}: the size of {buffer.name} is known at the call only, and a microcontroller has no heap; "
            "give the program fixed shapes"
        )
    name, kind = em.name(buffer.name), scalar_type(buffer.dtype.element)
    at = em.workspace.take(kind, elements * buffer.dtype.lanes, buffer.dtype.element.bytes)
    em.places[name] = (kind, at)
    em.put(f"{kind} *restrict {name} = tw_workspace_{kind} + {at};")
    return name


def free(em: FreestandingScope, pointer: str) -> None:
    """Give memory of the workspace back, for what is written after this."""
    em.workspace.give(*em.places[pointer])


_HALF_UP = {"floor": "t > x ? t - 1 : t", "ceil": "t < x ? t + 1 : t", "trunc": "t"}
"""The functions that follow from the whole part ``t`` of ``x``."""

_SQRT = (
    "uint32_t u; memcpy(&u, &x, 4); if (x != x || u == 0x7F800000 || !(u << 1)) return x; "
    "if (u >> 31) return NAN; "
    "int32_t e = (int32_t)(u >> 23); uint32_t m = u & 0x7FFFFF; "
    "if (e) m |= 0x800000; else { e = 1; while (!(m >> 23)) { m <<= 1; --e; } } "
    "e -= 127; uint64_t v = (uint64_t)m << (e & 1 ? 26 : 25), r = 0; "
    "for (uint64_t b = (uint64_t)1 << 25; b; b >>= 1) if ((r | b) * (r | b) <= v) r |= b; "
    "uint32_t s = (uint32_t)(r >> 1), odd = (uint32_t)(r & 1); "
    "if (odd && (r * r != v || (s & 1))) ++s; "
    "uint32_t w = ((uint32_t)(((e - (e & 1)) / 2) + 126) << 23) + s; memcpy(&x, &w, 4); return x;"
)
"""The square root of a float32 by digits, rounded to nearest: two more bits than the result has, and what is left."""


def library_call(em: FreestandingScope, symbol: str, e: Call) -> str:
    """Returns the results of a function that is written out here. :class:`CEmitError` names one that is not."""
    name = symbol.removesuffix("f")
    kind, single = scalar_type(e.dtype.element), e.dtype.bits == 32
    word, limit = ("int32_t", "0x1p23f") if single else ("int64_t", "0x1p52")
    bodies = {
        "fabs": "return x < 0 ? -x : x == 0 ? 0 : x;",
        "nearbyint": f"if (!(x > -{limit} && x < {limit})) return x; return x < 0 ? x - {limit} + {limit} : x + {limit} - {limit};",
        **({"sqrt": _SQRT} if single else {}),
        **{n: f"if (!(x > -{limit} && x < {limit})) return x; {kind} t = ({kind})({word})x; return {value};"
           for n, value in _HALF_UP.items()},
    }  # fmt: skip
    bodies["rint"] = bodies["nearbyint"]
    if name not in bodies:
        raise CEmitError(
            f"{em.unit.name}: {e.op} of {e.dtype.element} is a function of the mathematical library, {symbol}, which a "
            "microcontroller's program does without; compute it from other operations, or link one with target c"
        )
    function = em.helpers.define(f"tw_{symbol}", kind, f"{kind} x", bodies[name])
    return f"{em.helpers.lanewise(function, e.dtype, [a.dtype for a in e.args])}({', '.join(map(em.value, e.args))})"


_DOT4 = """
static inline int32_t tw_dot4_u8i8(int32_t c, uint32_t a, uint32_t b) {
#if defined(__ARM_FEATURE_DSP) && defined(__GNUC__)
  uint32_t a0, a1, b0, b1;
  __asm__("uxtb16 %0, %1" : "=r"(a0) : "r"(a));
  __asm__("sxtb16 %0, %1" : "=r"(b0) : "r"(b));
  __asm__("uxtb16 %0, %1, ror #8" : "=r"(a1) : "r"(a));
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(b1) : "r"(b));
  __asm__("smlad %0, %1, %2, %0" : "+r"(c) : "r"(a0), "r"(b0));
  __asm__("smlad %0, %1, %2, %0" : "+r"(c) : "r"(a1), "r"(b1));
  return c;
#else
  uint32_t sum = (uint32_t)c;
  for (int i = 0; i < 32; i += 8) sum += (uint32_t)((int32_t)(a >> i & 255) * (int8_t)(uint8_t)(b >> i & 255));
  return (int32_t)sum;
#endif
}
static inline uint32_t tw_word(const void *p) { uint32_t u; memcpy(&u, p, 4); return u; }"""


def dot4(em: FreestandingScope, e: Call) -> str:
    """Returns a dot product of four bytes by SMLAD, two terms at a time; of vectors of them, plain arithmetic."""
    c, a, b = e.args
    if e.dtype.lanes > 1:
        return em.value(expand_dot(e))
    em.helpers.lines.setdefault("tw_dot4_u8i8", _DOT4)
    return f"tw_dot4_u8i8({em.value(c)}, {_word(em, a)}, {_word(em, b)})"


def _word(em: FreestandingScope, e: Expr) -> str:
    """Returns four bytes as one word."""
    if isinstance(e, BufferLoad) and e.predicate is None and e.buffer not in em.registers:
        pointer, apart = em.place(e.buffer, e.indices, e.dtype.lanes)
        if apart is None:
            return f"tw_word({pointer})"
    name = em.name("bytes")
    em.before(f"const {em.helpers.vector(e.dtype)} {name} = {em.value(e)};")
    return f"tw_word(&{name})"


FREESTANDING_CALLS: dict[str, Any] = {"dot4_u8i8": dot4}
"""Writers by the operation's name."""
