"""A Cortex-M7 board that QEMU emulates: how programs are compiled, linked and run there, and how their cycles are counted.

A timer of the board ticks at 25 MHz. QEMU lets an instruction take 32 ns (-icount shift=5), so that 4 ticks are 5 instructions, each of
which counts as a cycle.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FLAGS = [
    "-mcpu=cortex-m7",
    "-mthumb",
    "-mfpu=fpv5-d16",
    "-mfloat-abi=hard",
    "-O2",
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
]
"""The compiler's options; the C of Tilewright has to be free of warnings as well."""
SCRIPT = """
ENTRY(Reset_Handler)
MEMORY { FLASH (rx) : ORIGIN = 0x00000000, LENGTH = 4M  RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.ARM.ex*) . = ALIGN(8); data_load = .; } > FLASH
  .data : AT(data_load) { data_begin = .; *(.data*) . = ALIGN(8); data_end = .; } > RAM
  .bss : { bss_begin = .; *(.bss*) *(COMMON) . = ALIGN(8); end = .; } > RAM
}
"""
START = """
#include <stdint.h>
extern uint32_t data_load, data_begin, data_end, bss_begin, end;
int main(void);
void exit(int);
void initialise_monitor_handles(void);
void _init(void) {}
void _fini(void) {}
void Reset_Handler(void) {
  *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* the floating-point unit */
  for (uint32_t *from = &data_load, *to = &data_begin; to < &data_end;) *to++ = *from++;
  for (uint32_t *to = &bss_begin; to < &end;) *to++ = 0;
  initialise_monitor_handles();
  exit(main());
}
__attribute__((section(".vectors"), used)) static const void *const vectors[] = {(void *)0x20400000, (void *)Reset_Handler};
"""

TIMER = r"""
#include <stdint.h>
#define TIMER ((volatile uint32_t *)0x40000000) /* control, value, reload */
static void start(void) { /* it counts down from its largest value, for 171 seconds */
  TIMER[0] = 0;
  TIMER[1] = TIMER[2] = 0xFFFFFFFF;
  TIMER[0] = 1;
}
#define CYCLES ((unsigned long)((0xFFFFFFFFULL - TIMER[1]) * 5 / 4))
"""


def missing_tools() -> list[str]:
    """Returns the tools that are needed and not installed."""
    return [tool for tool in ("arm-none-eabi-gcc", "qemu-system-arm") if shutil.which(tool) is None]


def sizes_of(folder: Path, name: str) -> tuple[int, int, int]:
    """Compiles NAME.c without a warning; returns the bytes of code and constants, of initialized and of empty memory."""
    _run(folder, "arm-none-eabi-gcc", *FLAGS, "-Werror", "-c", f"{name}.c")
    words = _run(folder, "arm-none-eabi-size", f"{name}.o").splitlines()[1].split()
    return int(words[0]), int(words[1]), int(words[2])


def run_on_board(folder: Path, names: Sequence[str]) -> str:
    """Returns what main.c prints, linked with the objects NAME.o; it may include timer.h."""
    for name, text in {"board.ld": SCRIPT, "start.c": START, "timer.h": TIMER}.items():
        (folder / name).write_text(text)
    objects = [f"{name}.o" for name in names]
    _run(folder, "arm-none-eabi-gcc", *FLAGS, "-Wno-pedantic", "start.c", "main.c", *objects, "-T", "board.ld", "-nostartfiles",
         "--specs=rdimon.specs", "-o", "program.elf")  # fmt: skip
    return _run(folder, "qemu-system-arm", "-M", "mps2-an500", "-icount", "shift=5", "-nographic", "-monitor", "none",
                "-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel", "program.elf")  # fmt: skip


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr
