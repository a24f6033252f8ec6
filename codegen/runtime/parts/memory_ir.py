"""Scratch memory for kernels, in LLVM IR.

A kernel that packs its operands asks for the same blocks at every call; fresh pages from the system would cost more
than the packing. Freed blocks are therefore kept in 32 slots, which are read and written by atomic exchange, and are
reused when they are large enough and at most twice too large. At most 1 GiB is kept, and no block above 256 MiB. A
block's capacity (the bytes that its user may access) is stored 64 bytes before it. From 2 MiB on, blocks are aligned to
huge pages and request them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...machine.target import Target
from .runtime_part import RuntimePart, is_linux

_TEXT = r"""
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


MEMORY = RuntimePart(_TEXT, ("tw_alloc", "tw_free"), _words)
