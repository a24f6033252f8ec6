"""How long operations of a circuit take, in delays of an adder."""

from __future__ import annotations

DELAYS: dict[str, float] = {
    **dict.fromkeys(("cut", "low_bits", "shifted_left", "shifted_right", "copy"), 0.0),
    **dict.fromkeys(("and", "not", "bits_and", "bits_or", "bits_xor"), 0.3),
    "select": 0.5,
    **dict.fromkeys(("add", "sub", "less", "equal"), 1.0),
    **dict.fromkeys(("move_left", "move_right"), 1.5),
    "mul": 3.0,
    **dict.fromkeys(("quotient", "remainder"), 12.0),
}
"""How long operations take, by the word of a net."""

LEVELS = 6.0
"""How many delays of an adder follow each other in a cycle; a longer operation has a cycle of its own."""

MEMORY_DELAY = 1.0
"""When a memory's word is there in its cycle."""
