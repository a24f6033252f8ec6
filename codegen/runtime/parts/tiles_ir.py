"""The request for tile registers, in LLVM IR.

Linux lets a process use the registers' 8 KiB when it asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA), by number,
since libc has no name for it. The permission covers all threads, and children after a fork. A system or machine without
AMX refuses.
"""

from .runtime_part import RuntimePart, is_linux

_TEXT = r"""
@tw_tiles_allowed = $data global i32 0, align 64

define $link i32 @tw_tiles() noinline nounwind {
entry:
  %known = load atomic i32, ptr @tw_tiles_allowed monotonic, align 4
  %allowed = icmp ne i32 %known, 0
  br i1 %allowed, label %yes, label %ask
ask:
  %answer = $ask_tiles
  %granted = icmp eq i64 %answer, 0
  br i1 %granted, label %note, label %no
note:
  store atomic i32 1, ptr @tw_tiles_allowed monotonic, align 4
  br label %yes
yes:
  ret i32 0
no:
  ret i32 1
}
"""

_ASK = (
    'call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"(i64 158, i64 4131, i64 18)'
)

TILES = RuntimePart(
    _TEXT,
    ("tw_tiles",),
    lambda target: {"ask_tiles": _ASK if is_linux(target) and target.arch == "x86_64" else "add i64 0, 1"},
)
