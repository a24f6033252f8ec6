"""The runtime as LLVM IR text: thread pool, scratch memory, timing. It needs only libc and pthreads.

One text serves every target: loaded once per process by the JIT, or linked into exported objects (then every symbol is
``linkonce_odr hidden``: several objects in one program share one pool, several libraries do not meet).

============================================  ===================================================================
``void tw_parallel_for(fn, ctx, n, threads)``  ``fn(ctx, begin, end)`` over [0, n), one static chunk per thread
``ptr tw_alloc(i64 bytes)``                    scratch memory aligned to 64 bytes; null when there is none
``void tw_free(ptr)``                          gives it back, to a small cache
``i32 tw_tiles()``                              0 when this process may use AMX's tile registers: it asks for them
``i64 tw_now()``                               nanoseconds of a monotonic clock
``i64 tw_time(packed, args, number)``          nanoseconds of ``number`` calls ``packed(args)``
``i64 tw_time_cold(…, buffer, bytes)``         the same, the caches filled with ``buffer`` before each call, untimed
``void tw_touch(buffer, bytes)``               reads and writes every cache line
============================================  ===================================================================
"""

from __future__ import annotations

from string import Template

from ..machine.target import Target
from .memory_ir import MEMORY
from .pool_ir import POOL

SYMBOLS = ("tw_alloc", "tw_free", "tw_now", "tw_parallel_for", "tw_tiles", "tw_time", "tw_time_cold", "tw_touch")
"""The functions of the runtime that generated code and the call path use."""

TIMING = r"""
declare i32 @clock_gettime(i32, ptr)

define $link i64 @tw_now() noinline nounwind {
  %ts = alloca { i64, i64 }, align 16
  %rc = call i32 @clock_gettime(i32 $clock, ptr %ts)
  %sec = load i64, ptr %ts, align 8
  %at = getelementptr { i64, i64 }, ptr %ts, i32 0, i32 1
  %nsec = load i64, ptr %at, align 8
  %ns = mul i64 %sec, 1000000000
  %now = add i64 %ns, %nsec
  ret i64 %now
}

define $link i64 @tw_time(ptr %packed, ptr %args, i64 %number) noinline nounwind {
entry:
  %start = call i64 @tw_now()
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %rc = call i32 %packed(ptr %args)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %number
  br i1 %more, label %loop, label %done
done:
  %end = call i64 @tw_now()
  %took = sub i64 %end, %start
  ret i64 %took
}

define $link i64 @tw_time_cold(ptr %packed, ptr %args, i64 %number, ptr %buffer, i64 %bytes) noinline nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %total, %loop ]
  call void @tw_touch(ptr %buffer, i64 %bytes)
  %start = call i64 @tw_now()
  %rc = call i32 %packed(ptr %args)
  %end = call i64 @tw_now()
  %took = sub i64 %end, %start
  %total = add i64 %sum, %took
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %number
  br i1 %more, label %loop, label %done
done:
  ret i64 %total
}

define $link void @tw_touch(ptr %buffer, i64 %bytes) noinline nounwind {
entry:
  %any = icmp sgt i64 %bytes, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %buffer, i64 %i
  %old = load volatile i8, ptr %at
  %new = add i8 %old, 1
  store volatile i8 %new, ptr %at
  %next = add i64 %i, 64
  %more = icmp slt i64 %next, %bytes
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


TILES = r"""
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
"""Linux lets a process use the registers' 8 KiB when it asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA), by number,
since libc has no name for it. The permission covers all threads, and children after a fork. A system or machine without
AMX refuses."""

ASK_TILES = (
    'call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"(i64 158, i64 4131, i64 18)'
)


def runtime_ir(target: Target, exported: bool = False, alone: bool = False) -> str:
    """Return the runtime for ``target`` (POSIX systems). ``exported``: it is to be linked into an exported object
    file; ``alone``: it is an object file of its own in an exported library."""
    linkage = "hidden" if alone else "linkonce_odr hidden" if exported else ""
    mac = "darwin" in target.triple or "macos" in target.triple
    pause_decl, pause = {
        "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
        "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    }.get(target.arch, ("", ""))
    linux = "linux" in target.triple
    return Template(POOL + MEMORY + TIMING + TILES).substitute(
        link=linkage,
        data=linkage or "internal",
        pause_decl=pause_decl,
        pause=pause,
        setmask=3 if mac else 2,
        ask_tiles=ASK_TILES if linux and target.arch == "x86_64" else "add i64 0, 1",
        clock=6 if mac else 1,
        madvise_decl="declare i32 @madvise(ptr, i64, i32)" if linux else "",
        madvise="%advised = call i32 @madvise(ptr %raw, i64 %total, i32 14)" if linux else "",
    )
