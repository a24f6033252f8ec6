"""The cores on which the threads of a job run, in LLVM IR.

A thread that waits by spinning looks busy to the kernel, which therefore leaves two threads of a job on one core for many
milliseconds, while another core is free. So each thread notes its core when it begins with its part of a job, and a worker
that finds itself beside a thread before it moves (Linux; elsewhere nothing is known about cores, and nothing moves).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...machine.target import Target
from .runtime_part import RuntimePart, is_linux

_TEXT = r"""
@tw_cores = $data global [257 x i32] zeroinitializer, align 64
$core_declarations
; Thread %index of a job notes the core that it is on. True when a thread before it is on the same one.
define $link i1 @tw_note_core(i64 %index) noinline nounwind {
entry:
  %core = $core
  %own = getelementptr [257 x i32], ptr @tw_cores, i64 0, i64 %index
  %known = load atomic i32, ptr %own monotonic, align 4
  %same = icmp eq i32 %known, %core
  br i1 %same, label %loop, label %note
note:
  store atomic i32 %core, ptr %own monotonic, align 4
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ 0, %note ], [ %next, %look ]
  %more = icmp ult i64 %k, %index
  br i1 %more, label %look, label %free
look:
  %next = add i64 %k, 1
  %at = getelementptr [257 x i32], ptr @tw_cores, i64 0, i64 %k
  %other = load atomic i32, ptr %at monotonic, align 4
  %shared = icmp eq i32 %other, %core
  br i1 %shared, label %taken, label %loop
free:
  ret i1 false
taken:
  ret i1 true
}

; Worker %index of %threads moves to a core on which none of the others is, if it may: its set of cores is narrowed to these
; for a moment, which moves it at once.
define $link void @tw_leave_core(i64 %index, i64 %threads) noinline nounwind {
entry:
  %all = alloca [16 x i64], align 16
  %free = alloca [16 x i64], align 16
  %taken = call i1 @tw_note_core(i64 %index)
  br i1 %taken, label %ask, label %done
ask:
  store [16 x i64] zeroinitializer, ptr %all, align 16
  %size = $ask
  %failed = icmp slt i32 %size, 0
  br i1 %failed, label %done, label %copy
copy:
  %every = load [16 x i64], ptr %all, align 16
  store [16 x i64] %every, ptr %free, align 16
  br label %loop
loop:
  %k = phi i64 [ 0, %copy ], [ %next, %remove ], [ %next, %skip ]
  %more = icmp ult i64 %k, %threads
  br i1 %more, label %skip, label %move
skip:
  %next = add i64 %k, 1
  %at = getelementptr [257 x i32], ptr @tw_cores, i64 0, i64 %k
  %core = load atomic i32, ptr %at monotonic, align 4
  %valid = icmp ult i32 %core, 1024
  br i1 %valid, label %remove, label %loop
remove:
  %wordnumber = lshr i32 %core, 6
  %inword = and i32 %core, 63
  %shift = zext i32 %inword to i64
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %word = getelementptr [16 x i64], ptr %free, i32 0, i32 %wordnumber
  %before = load i64, ptr %word, align 8
  %after = and i64 %before, %others
  store i64 %after, ptr %word, align 8
  br label %loop
move:
  %moved = $move
  %refused = icmp ne i32 %moved, 0
  br i1 %refused, label %done, label %restore
restore:
  %restored = $restore
  %noted = call i1 @tw_note_core(i64 %index)
  br label %done
done:
  ret void
}
"""

_LINUX = {
    "core_declarations": (
        "declare i32 @sched_getcpu()\n"
        "declare i32 @sched_getaffinity(i32, i64, ptr)\n"
        "declare i32 @sched_setaffinity(i32, i64, ptr)"
    ),
    "core": "call i32 @sched_getcpu()",
    "ask": "call i32 @sched_getaffinity(i32 0, i64 128, ptr %all)",
    "move": "call i32 @sched_setaffinity(i32 0, i64 128, ptr %free)",
    "restore": "call i32 @sched_setaffinity(i32 0, i64 128, ptr %all)",
}

_ELSEWHERE = {
    "core_declarations": "",
    "core": "trunc i64 %index to i32",
    "ask": "add i32 -1, 0",
    "move": "add i32 -1, 0",
    "restore": "add i32 -1, 0",
}


def _words(target: Target) -> Mapping[str, str]:
    return _LINUX if is_linux(target) else _ELSEWHERE


CORES = RuntimePart(_TEXT, (), _words)
