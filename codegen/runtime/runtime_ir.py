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

from collections.abc import Mapping
from string import Template

from ..machine.target import Target
from .pool_ir import CORES, POOL, RuntimePart, is_linux, is_mac

# Scratch memory for kernels, in LLVM IR.
#
# A kernel that packs its operands asks for the same blocks at every call; fresh pages from the system would cost more
# than the packing. Freed blocks are therefore kept in 32 slots, which are read and written by atomic exchange, and are
# reused when they are large enough and at most twice too large. At most 1 GiB is kept, and no block above 256 MiB. A
# block's capacity (the bytes that its user may access) is stored 64 bytes before it. From 2 MiB on, blocks are aligned to
# huge pages and request them.

_MEMORY_TEXT = r"""
@tw_cache = $data global [32 x ptr] zeroinitializer, align 64
@tw_cached = $data global i64 0, align 64

declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
$madvise_decl

define $link ptr @tw_alloc(i64 %bytes) noinline nounwind {
entry:
  %out = alloca ptr, align 8
  %some = icmp sgt i64 %bytes, 64
  %need = select i1 %some, i64 %bytes, i64 64
  %twice = shl i64 %need, 1
  %most = add i64 %twice, 4096
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %next, %skip ]
  %slot = getelementptr [32 x ptr], ptr @tw_cache, i64 0, i64 %i
  %peek = load atomic ptr, ptr %slot monotonic, align 8
  %vacant = icmp eq ptr %peek, null
  br i1 %vacant, label %skip, label %take
take:
  %block = atomicrmw xchg ptr %slot, ptr null acquire, align 8
  %gone = icmp eq ptr %block, null
  br i1 %gone, label %skip, label %measure
measure:
  %head = getelementptr i8, ptr %block, i64 -64
  %capacity = load i64, ptr %head, align 8
  %enough = icmp uge i64 %capacity, %need
  %modest = icmp ule i64 %capacity, %most
  %fits = and i1 %enough, %modest
  br i1 %fits, label %reuse, label %return_it
reuse:
  %c0 = atomicrmw sub ptr @tw_cached, i64 %capacity monotonic, align 8
  ret ptr %block
return_it:
  %displaced = atomicrmw xchg ptr %slot, ptr %block acq_rel, align 8
  %none = icmp eq ptr %displaced, null
  br i1 %none, label %skip, label %drop
drop:
  call void @tw_drop(ptr %displaced)
  br label %skip
skip:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 32
  br i1 %more, label %look, label %fresh
fresh:
  %big = icmp uge i64 %need, 2097152
  %align = select i1 %big, i64 2097152, i64 64
  %padded = add i64 %need, 127
  %total = and i64 %padded, -64
  %rc = call i32 @posix_memalign(ptr %out, i64 %align, i64 %total)
  %bad = icmp ne i32 %rc, 0
  br i1 %bad, label %fail, label %made
made:
  %raw = load ptr, ptr %out, align 8
  %usable = sub i64 %total, 64
  br i1 %big, label %huge, label %label
huge:
  $madvise
  br label %label
label:
  store i64 %usable, ptr %raw, align 8
  %user = getelementptr i8, ptr %raw, i64 64
  ret ptr %user
fail:
  ret ptr null
}

define $link void @tw_free(ptr %block) noinline nounwind {
entry:
  %null = icmp eq ptr %block, null
  br i1 %null, label %return, label %measure
measure:
  %head = getelementptr i8, ptr %block, i64 -64
  %capacity = load i64, ptr %head, align 8
  %huge = icmp ugt i64 %capacity, 268435456
  br i1 %huge, label %release, label %account
account:
  %before = atomicrmw add ptr @tw_cached, i64 %capacity monotonic, align 8
  %after = add i64 %before, %capacity
  %full = icmp ugt i64 %after, 1073741824
  br i1 %full, label %forget, label %look
look:
  %i = phi i64 [ 0, %account ], [ %next, %skip ]
  %slot = getelementptr [32 x ptr], ptr @tw_cache, i64 0, i64 %i
  %peek = load atomic ptr, ptr %slot monotonic, align 8
  %vacant = icmp eq ptr %peek, null
  br i1 %vacant, label %try, label %skip
try:
  %put = cmpxchg ptr %slot, ptr null, ptr %block release monotonic, align 8
  %ok = extractvalue { ptr, i1 } %put, 1
  br i1 %ok, label %return, label %skip
skip:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 32
  br i1 %more, label %look, label %evict
evict:
  ; Every slot is full, perhaps of blocks that nobody wants any more: this one replaces one of them.
  %mixed = lshr i64 %after, 6
  %which = and i64 %mixed, 31
  %victim = getelementptr [32 x ptr], ptr @tw_cache, i64 0, i64 %which
  %old = atomicrmw xchg ptr %victim, ptr %block acq_rel, align 8
  %nothing = icmp eq ptr %old, null
  br i1 %nothing, label %return, label %drop
drop:
  call void @tw_drop(ptr %old)
  br label %return
forget:
  %c1 = atomicrmw sub ptr @tw_cached, i64 %capacity monotonic, align 8
  br label %release
release:
  call void @free(ptr %head)
  br label %return
return:
  ret void
}

; A block leaves the cache and goes back to the system.
define $link void @tw_drop(ptr %block) noinline nounwind {
  %head = getelementptr i8, ptr %block, i64 -64
  %capacity = load i64, ptr %head, align 8
  %c0 = atomicrmw sub ptr @tw_cached, i64 %capacity monotonic, align 8
  call void @free(ptr %head)
  ret void
}
"""


def _words(target: Target) -> Mapping[str, str]:
    return {
        "madvise_decl": "declare i32 @madvise(ptr, i64, i32)" if is_linux(target) else "",
        "madvise": "%advised = call i32 @madvise(ptr %raw, i64 %total, i32 14)" if is_linux(target) else "",
    }


MEMORY = RuntimePart(_MEMORY_TEXT, ("tw_alloc", "tw_free"), _words)


# The clock and loops that time calls, in LLVM IR.

_TIMING_TEXT = r"""
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

TIMING = RuntimePart(
    _TIMING_TEXT,
    ("tw_now", "tw_time", "tw_time_cold", "tw_touch"),
    lambda target: {"clock": "6" if is_mac(target) else "1"},
)


# The request for tile registers, in LLVM IR.
#
# Linux lets a process use the registers' 8 KiB when it asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA), by number,
# since libc has no name for it. The permission covers all threads, and children after a fork. A system or machine without
# AMX refuses.

_TILES_TEXT = r"""
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
    _TILES_TEXT,
    ("tw_tiles",),
    lambda target: {"ask_tiles": _ASK if is_linux(target) and target.arch == "x86_64" else "add i64 0, 1"},
)


# All parts as one text.

PARTS = [CORES, POOL, MEMORY, TIMING, TILES]
"""The parts of the runtime in the order of the text."""

SYMBOLS = tuple(sorted([symbol for part in PARTS for symbol in part.symbols]))
"""The functions of the runtime that generated code and the call path use."""


def runtime_ir(target: Target, exported: bool = False, alone: bool = False) -> str:
    """Return the runtime for ``target`` (POSIX systems). ``exported``: it is to be linked into an exported object
    file; ``alone``: it is an object file of its own in an exported library."""
    linkage = "hidden" if alone else "linkonce_odr hidden" if exported else ""
    words = {"link": linkage, "data": linkage or "internal"}
    for part in PARTS:
        words.update(part.words(target))
    return Template("".join([part.text for part in PARTS])).substitute(words)
