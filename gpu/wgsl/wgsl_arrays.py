"""Arrays in WGSL, whose words have 32 bits. Narrow elements share words; words that threads change at once are atomic.

=======================================  =============================================================================
an array                                 in WGSL
=======================================  =============================================================================
of 32 bits                               ``array<f32>``, ``array<i32>`` or ``array<u32>``
of 32 bits, with atomic additions        ``array<atomic<i32>>``, or of ``u32``; float32 by their bits
of 8 or 16 bits and bool, only read      ``array<u32>``, 4 or 2 elements in a word, the first one in its lowest bits
of 8 or 16 bits and bool, written        ``array<atomic<u32>>``: two operations clear and set the bits of an element
of one thread                            an element each, whatever its type
=======================================  =============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from ...tir.expr import DType
from .wgsl_functions import WgslFunctions, is_half, scalar_kind


@dataclass(frozen=True)
class WgslArray:
    """An array with a name. ``private``: a thread has its own; ``changed``: several threads may write to one word."""

    name: str
    dtype: DType
    functions: WgslFunctions
    private: bool = False
    changed: bool = False

    @property
    def bits(self) -> int:
        """The bits of an element in memory."""
        return max(8, self.dtype.bits)

    @property
    def packed(self) -> bool:
        """Whether elements share words."""
        return not self.private and self.bits < 32

    @property
    def word(self) -> str:
        """The type of what the array holds, without ``atomic``."""
        if self.packed:
            return "u32"
        kind = scalar_kind(self.dtype)
        return "u32" if self.changed and kind == "f32" else kind

    def kind(self, elements: int | None = None) -> str:
        """Return the type of the array, with room for so many elements; None: as many as are given."""
        word = f"atomic<{self.word}>" if self.changed else self.word
        if elements is None:
            return f"array<{word}>"
        return f"array<{word}, {-(-elements * self.bits // 32) if self.packed else elements}>"

    def load(self, at: str) -> str:
        """Return an element."""
        kind, f = scalar_kind(self.dtype), self.functions
        if not self.packed:
            text = f"atomicLoad(&{self.name}[{at}])" if self.changed else f"{self.name}[{at}]"
            return text if self.word == kind else f"bitcast<{kind}>({text})"
        word = f"{self.name}[u32(i) {self._shift}]"
        word = f"atomicLoad(&{word})" if self.changed else word
        element = f.of_bits(f"(({word} >> {self._low}) & {self._mask})", self.dtype)
        return f"{f.define(f'tw_load_{self.name}', kind, 'i: i32', f'return {element};')}({at})"

    def store(self, at: str, value: str) -> str:
        """Return the statement that writes an element."""
        f, kind = self.functions, scalar_kind(self.dtype)
        if not self.packed:
            if not self.changed:
                return f"{self.name}[{at}] = {value};"
            return f"atomicStore(&{self.name}[{at}], {value if self.word == kind else f'bitcast<u32>({value})'});"
        word = f"&{self.name}[u32(i) {self._shift}]"
        body = (
            f"let low = {self._low}; atomicAnd({word}, ~({self._mask} << low)); "
            f"atomicOr({word}, {f.bits('x', self.dtype)} << low);"
        )
        return f"{f.define(f'tw_store_{self.name}', '', f'i: i32, x: {kind}', body)}({at}, {value});"

    def add(self, at: str, value: str) -> str:
        """Return the call that adds to an element, whichever threads do so meanwhile."""
        f, kind = self.functions, scalar_kind(self.dtype)
        if not self.packed and self.word == kind:
            body = f"atomicAdd(&{self.name}[i], x);"
            return f"{f.define(f'tw_add_{self.name}', '', f'i: i32, x: {kind}', body)}({at}, {value})"
        place = f"&{self.name}[u32(i) {self._shift}]" if self.packed else f"&{self.name}[i]"
        low, mask = (self._low, self._mask) if self.packed else ("0u", "0xffffffffu")
        seen = f.of_bits(f"((old >> low) & {mask})", self.dtype)
        if is_half(self.dtype):
            single = DType("float32")
            total = f"{f.converted(seen, self.dtype, single)} + {f.converted('x', self.dtype, single)}"
            made = f.converted(f"({total})", single, self.dtype)
        else:
            made = f"({seen} + x)"
        body = (
            f"let low = {low}; var old = atomicLoad({place}); loop {{ let new_word = (old & ~({mask} << low)) | "
            f"({f.bits(made, self.dtype)} << low); let r = atomicCompareExchangeWeak({place}, old, new_word); "
            "if (r.exchanged) { break; } old = r.old_value; }"
        )
        return f"{f.define(f'tw_add_{self.name}', '', f'i: i32, x: {kind}', body)}({at}, {value})"

    @property
    def _shift(self) -> str:
        return ">> 2u" if self.bits == 8 else ">> 1u"

    @property
    def _low(self) -> str:
        return "((u32(i) & 3u) * 8u)" if self.bits == 8 else "((u32(i) & 1u) * 16u)"

    @property
    def _mask(self) -> str:
        return "0xffu" if self.bits == 8 else "0xffffu"
