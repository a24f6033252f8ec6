"""The runtime as LLVM IR text: thread pool, scratch memory, timing. It needs only libc and pthreads.

One text serves every target: loaded once per process by the JIT, or linked into exported objects. There every symbol is
weak and hidden: several objects in one program share one pool. Several shared libraries share the variables, and with
them the pool, on Linux (:func:`_with_unique_state`); elsewhere, and when they were made for another processor, each has
its own.

============================================  ===================================================================
``void tw_parallel_for(fn, ctx, n, threads)``  ``fn(ctx, begin, end)`` over [0, n), one static chunk per thread
``ptr tw_alloc(i64 bytes)``                    scratch memory aligned to 64 bytes; null when there is none
``void tw_free(ptr)``                          gives it back, to a small cache
``i32 tw_spread(ptr, i64 bytes, i32 of_file)``  pages to the nodes in turns where ``TILEWRIGHT_NUMA`` says so; 1: refused
``i32 tw_tiles()``                              0 when this process may use AMX's tile registers: it asks for them
``i64 tw_now()``                               nanoseconds of a monotonic clock
``i64 tw_time(packed, args, number)``          nanoseconds of ``number`` calls ``packed(args)``
``i64 tw_time_cold(…, buffer, bytes)``         the same, the caches filled with ``buffer`` before each call, untimed
``void tw_touch(buffer, bytes)``               reads and writes every cache line
``void tw_limit_threads(get, set, i32 n)``     lets another library use ``n`` threads at most, from here on
``void tw_restore_threads(set)``               until as many calls of this one: it then has as many as before
============================================  ===================================================================

The fork-join pool, and the cores on which its threads run: one job at a time. The caller writes the job's fields,
then publishes ``epoch`` = (sequence << 16 | threads); a worker that sees a new epoch and whose index is below
``threads`` claims its chunk, runs it and counts ``pending`` down. When the caller has run its own chunk, it claims
those that no worker has begun with, so that a worker that sleeps or has lost its core costs no more than the job
takes on one thread. A chunk is claimed by raising its number in ``claims`` to the epoch; a worker that comes late
finds it raised, reads nothing else of the job, and the fields cannot change under a chunk that was claimed. Waiting
spins for some microseconds, then sleeps on a condition variable. While it spins it offers its core to others, because
the thread that it waits for may be on the same one; and a worker that finds itself on the core of the caller, or of a
worker before it, moves to a free one (Linux): the kernel leaves two such threads together for many milliseconds,
since neither of them sleeps. "Publish, then look for sleepers" against "register as sleeper, then look at the epoch",
all sequentially consistent, loses no wake-up.

Nested calls, and calls from a second thread while a job runs, run serially in their caller. Workers are detached and
block all signals. After a fork the child, seeing another process id, starts with a pool of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Template

from ..machine.target import Target
from ..machine.target_text import default_triple

# Defines a part of the runtime: its text in LLVM IR, and what the text depends on.


def _nothing(target: Target) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class RuntimePart:
    """A part of the runtime, which may call functions of the parts before it.

    ``text`` is IR in which ``$link`` and ``$data`` stand for the linkage of functions and of variables; ``symbols`` are the functions that
    generated code and the call path use; ``words`` gives further words of the text, which depend on the target.
    """

    text: str
    symbols: tuple[str, ...]
    words: Callable[[Target], Mapping[str, str]] = _nothing


def is_mac(target: Target) -> bool:
    """Returns whether the target's system is macOS, whose constants of POSIX differ."""
    return "darwin" in target.triple or "macos" in target.triple


def is_linux(target: Target) -> bool:
    """Returns whether the target's system is Linux."""
    return "linux" in target.triple


# The cores on which the threads of a job run, in LLVM IR.
#
# A thread that waits by spinning looks busy to the kernel, which therefore leaves two threads of a job on one core for many
# milliseconds, while another core is free. So each thread notes its core when it begins with its part of a job, and a worker
# that finds itself beside a thread before it moves (Linux; elsewhere nothing is known about cores, and nothing moves).

_CORES_TEXT = r"""
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


def _cores_words(target: Target) -> Mapping[str, str]:
    return _LINUX if is_linux(target) else _ELSEWHERE


CORES = RuntimePart(_CORES_TEXT, (), _cores_words)


# The fork-join pool, in LLVM IR.

_TEXT = r"""
@tw_pid = $data global i32 0, align 64
@tw_busy = $data global i32 0, align 64
@tw_epoch = $data global i64 0, align 64
@tw_pending = $data global i32 0, align 64
@tw_sleepers = $data global i32 0, align 64
@tw_waiting = $data global i32 0, align 4
@tw_workers = $data global i32 0, align 4
@tw_claims = $data global [256 x [8 x i64]] zeroinitializer, align 64
@tw_job_fn = $data global ptr null, align 64
@tw_job_ctx = $data global ptr null, align 8
@tw_job_n = $data global i64 0, align 8
@tw_mutex = $data global [16 x i64] zeroinitializer, align 64
@tw_go = $data global [16 x i64] zeroinitializer, align 64
@tw_done = $data global [16 x i64] zeroinitializer, align 64
@tw_slots = $data global [256 x { i64, i64 }] zeroinitializer, align 64

declare i32 @getpid()
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_yield()
$pause_decl

define $link void @tw_parallel_for(ptr %fn, ptr %ctx, i64 %n, i32 %threads) noinline nounwind {
entry:
  %empty = icmp slt i64 %n, 1
  br i1 %empty, label %return, label %size
size:
  %asked = sext i32 %threads to i64
  %few = icmp slt i64 %n, %asked
  %fit = select i1 %few, i64 %n, i64 %asked
  %large = icmp sgt i64 %fit, 256
  %team = select i1 %large, i64 256, i64 %fit
  %alone = icmp slt i64 %team, 2
  br i1 %alone, label %serial, label %enter
serial:
  call void %fn(ptr %ctx, i64 0, i64 %n)
  br label %return
enter:
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr @tw_pid acquire, align 4
  %ours = icmp eq i32 %pid, %owner
  br i1 %ours, label %claim, label %adopt
adopt:
  %adopted = call i1 @tw_adopt(i32 %pid, i32 %owner)
  br i1 %adopted, label %claim, label %serial
claim:
  %try = cmpxchg ptr @tw_busy, i32 0, i32 1 acquire monotonic, align 4
  %got = extractvalue { i32, i1 } %try, 1
  br i1 %got, label %staff, label %serial
staff:
  %want64 = sub i64 %team, 1
  %want = trunc i64 %want64 to i32
  %have = load i32, ptr @tw_workers, align 4
  %lack = icmp slt i32 %have, %want
  br i1 %lack, label %spawn, label %publish
spawn:
  %hired = call i32 @tw_spawn(i32 %have, i32 %want)
  br label %publish
publish:
  %staffed = phi i32 [ %have, %staff ], [ %hired, %spawn ]
  %short = icmp slt i32 %staffed, %want
  %others = select i1 %short, i32 %staffed, i32 %want
  %count = add i32 %others, 1
  %count64 = zext i32 %count to i64
  store ptr %fn, ptr @tw_job_fn, align 8
  store ptr %ctx, ptr @tw_job_ctx, align 8
  store i64 %n, ptr @tw_job_n, align 8
  store atomic i32 %others, ptr @tw_pending monotonic, align 4
  %on = call i1 @tw_note_core(i64 0)
  %old = load atomic i64, ptr @tw_epoch monotonic, align 8
  %sequence = lshr i64 %old, 16
  %following = add i64 %sequence, 1
  %shifted = shl i64 %following, 16
  %epoch = or i64 %shifted, %count64
  store atomic i64 %epoch, ptr @tw_epoch seq_cst, align 8
  %sleepers = load atomic i32, ptr @tw_sleepers seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  %l0 = call i32 @pthread_mutex_lock(ptr @tw_mutex)
  %b0 = call i32 @pthread_cond_broadcast(ptr @tw_go)
  %u0 = call i32 @pthread_mutex_unlock(ptr @tw_mutex)
  br label %work
work:
  %mine = sdiv i64 %n, %count64
  call void %fn(ptr %ctx, i64 0, i64 %mine)
  br label %help
help:
  %k = phi i64 [ 1, %work ], [ %following_k, %ask ], [ %following_k, %helped ]
  %some = icmp slt i64 %k, %count64
  br i1 %some, label %ask, label %spin
ask:
  %following_k = add i64 %k, 1
  %won = call i1 @tw_claim(i64 %k, i64 %epoch)
  br i1 %won, label %helped, label %help
helped:
  %others_left = call i32 @tw_run_chunk(i64 %k, i64 %count64)
  br label %help
spin:
  %turn = phi i32 [ 0, %help ], [ %turns, %more ]
  %left = load atomic i32, ptr @tw_pending acquire, align 4
  %finished = icmp eq i32 %left, 0
  br i1 %finished, label %release, label %pause
pause:
$wait_for_job
block:
  %l1 = call i32 @pthread_mutex_lock(ptr @tw_mutex)
  store atomic i32 1, ptr @tw_waiting seq_cst, align 4
  br label %check
check:
  %still = load atomic i32, ptr @tw_pending seq_cst, align 4
  %over = icmp eq i32 %still, 0
  br i1 %over, label %unblock, label %wait
wait:
  %w1 = call i32 @pthread_cond_wait(ptr @tw_done, ptr @tw_mutex)
  br label %check
unblock:
  store atomic i32 0, ptr @tw_waiting seq_cst, align 4
  %u1 = call i32 @pthread_mutex_unlock(ptr @tw_mutex)
  br label %release
release:
  store atomic i32 0, ptr @tw_busy release, align 4
  br label %return
return:
  ret void
}

; Claim chunk %k of the job %epoch; false when another thread has it.
define $link i1 @tw_claim(i64 %k, i64 %epoch) noinline nounwind {
entry:
  %at = getelementptr [256 x [8 x i64]], ptr @tw_claims, i64 0, i64 %k, i64 0
  %last = load atomic i64, ptr %at acquire, align 8
  %open = icmp ult i64 %last, %epoch
  br i1 %open, label %raise, label %lost
raise:
  %try = cmpxchg ptr %at, i64 %last, i64 %epoch acq_rel monotonic, align 8
  %got = extractvalue { i64, i1 } %try, 1
  ret i1 %got
lost:
  ret i1 false
}

; Run chunk %k of %threads, which was claimed, and count it; returns how many were pending before.
define $link i32 @tw_run_chunk(i64 %k, i64 %threads) noinline nounwind {
entry:
  %fn = load ptr, ptr @tw_job_fn, align 8
  %ctx = load ptr, ptr @tw_job_ctx, align 8
  %n = load i64, ptr @tw_job_n, align 8
  %p0 = mul i64 %n, %k
  %begin = sdiv i64 %p0, %threads
  %p1 = add i64 %p0, %n
  %end = sdiv i64 %p1, %threads
  call void %fn(ptr %ctx, i64 %begin, i64 %end)
  %pending = atomicrmw sub ptr @tw_pending, i32 1 seq_cst, align 4
  ret i32 %pending
}

; A new process (the first call, or a child after fork): everything starts empty. False when another thread is at it.
define $link i1 @tw_adopt(i32 %pid, i32 %owner) noinline nounwind {
entry:
  %taken = icmp eq i32 %owner, -1
  br i1 %taken, label %no, label %take
take:
  %try = cmpxchg ptr @tw_pid, i32 %owner, i32 -1 acq_rel monotonic, align 4
  %got = extractvalue { i32, i1 } %try, 1
  br i1 %got, label %fresh, label %no
fresh:
  %m = call i32 @pthread_mutex_init(ptr @tw_mutex, ptr null)
  %g = call i32 @pthread_cond_init(ptr @tw_go, ptr null)
  %d = call i32 @pthread_cond_init(ptr @tw_done, ptr null)
  store i32 0, ptr @tw_workers, align 4
  store i32 0, ptr @tw_busy, align 4
  store i32 0, ptr @tw_sleepers, align 4
  store i32 0, ptr @tw_waiting, align 4
  store i32 0, ptr @tw_pending, align 4
  store atomic i32 %pid, ptr @tw_pid release, align 4
  ret i1 true
no:
  ret i1 false
}

; Start workers until there are %want; the number there are then (the caller holds the busy flag).
define $link i32 @tw_spawn(i32 %have, i32 %want) noinline nounwind {
entry:
  %full = alloca [16 x i64], align 16
  %saved = alloca [16 x i64], align 16
  %attr = alloca [16 x i64], align 16
  %thread = alloca ptr, align 8
  %f = call i32 @sigfillset(ptr %full)
  %m = call i32 @pthread_sigmask(i32 $setmask, ptr %full, ptr %saved)
  %ai = call i32 @pthread_attr_init(ptr %attr)
  %as = call i32 @pthread_attr_setstacksize(ptr %attr, i64 8388608)
  %epoch = load atomic i64, ptr @tw_epoch monotonic, align 8
  br label %loop
loop:
  %k = phi i32 [ %have, %entry ], [ %next, %started ]
  %more = icmp slt i32 %k, %want
  br i1 %more, label %start, label %done
start:
  %next = add i32 %k, 1
  %slot = getelementptr [256 x { i64, i64 }], ptr @tw_slots, i32 0, i32 %k
  store i64 %epoch, ptr %slot, align 8
  %at = getelementptr { i64, i64 }, ptr %slot, i32 0, i32 1
  %index = zext i32 %next to i64
  store i64 %index, ptr %at, align 8
  %rc = call i32 @pthread_create(ptr %thread, ptr %attr, ptr @tw_worker, ptr %slot)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %started, label %done
started:
  %handle = load ptr, ptr %thread, align 8
  %dt = call i32 @pthread_detach(ptr %handle)
  br label %loop
done:
  %ad = call i32 @pthread_attr_destroy(ptr %attr)
  %r = call i32 @pthread_sigmask(i32 $setmask, ptr %saved, ptr null)
  store i32 %k, ptr @tw_workers, align 4
  ret i32 %k
}

define $link ptr @tw_worker(ptr %slot) noinline nounwind {
entry:
  %first = load i64, ptr %slot, align 8
  %at = getelementptr { i64, i64 }, ptr %slot, i32 0, i32 1
  %index = load i64, ptr %at, align 8
  br label %idle
idle:
  %seen = phi i64 [ %first, %entry ], [ %epoch, %run ], [ %epoch, %claim ], [ %epoch, %work ], [ %epoch, %last ], [ %epoch, %signal ]
  br label %spin
spin:
  %turn = phi i32 [ 0, %idle ], [ %turns, %more ]
  %now = load atomic i64, ptr @tw_epoch acquire, align 8
  %new = icmp ne i64 %now, %seen
  br i1 %new, label %run, label %pause
pause:
$wait_for_work
sleep:
  %l0 = call i32 @pthread_mutex_lock(ptr @tw_mutex)
  %s0 = atomicrmw add ptr @tw_sleepers, i32 1 seq_cst, align 4
  br label %check
check:
  %later = load atomic i64, ptr @tw_epoch seq_cst, align 8
  %woken = icmp ne i64 %later, %seen
  br i1 %woken, label %awake, label %wait
wait:
  %w0 = call i32 @pthread_cond_wait(ptr @tw_go, ptr @tw_mutex)
  br label %check
awake:
  %s1 = atomicrmw sub ptr @tw_sleepers, i32 1 seq_cst, align 4
  %u0 = call i32 @pthread_mutex_unlock(ptr @tw_mutex)
  br label %run
run:
  %epoch = phi i64 [ %now, %spin ], [ %later, %awake ]
  %threads = and i64 %epoch, 65535
  %wanted = icmp ult i64 %index, %threads
  br i1 %wanted, label %claim, label %idle
claim:
  call void @tw_leave_core(i64 %index, i64 %threads)
  %mine = call i1 @tw_claim(i64 %index, i64 %epoch)
  br i1 %mine, label %work, label %idle
work:
  %left = call i32 @tw_run_chunk(i64 %index, i64 %threads)
  %final = icmp eq i32 %left, 1
  br i1 %final, label %last, label %idle
last:
  %waiting = load atomic i32, ptr @tw_waiting seq_cst, align 4
  %blocked = icmp ne i32 %waiting, 0
  br i1 %blocked, label %signal, label %idle
signal:
  %l1 = call i32 @pthread_mutex_lock(ptr @tw_mutex)
  %g1 = call i32 @pthread_cond_signal(ptr @tw_done)
  %u1 = call i32 @pthread_mutex_unlock(ptr @tw_mutex)
  br label %idle
}
"""


def _wait(pause: str, turns: int, then: str) -> str:
    """Return the end of a loop ``spin``, which waits and leaves for ``then`` after ``turns``. It pauses, and offers its
    core now and then."""
    return f"""  {pause}
  %turns = add i32 %turn, 1
  %sixtyfourth = and i32 %turns, 63
  %offer = icmp eq i32 %sixtyfourth, 0
  br i1 %offer, label %yield, label %more
yield:
  %y = call i32 @sched_yield()
  br label %more
more:
  %patient = icmp ult i32 %turns, {turns}
  br i1 %patient, label %spin, label %{then}"""


def _pool_words(target: Target) -> Mapping[str, str]:
    declared, called = {
        "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
        "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    }.get(target.arch, ("", ""))
    waits = {"wait_for_job": _wait(called, 4000, "block"), "wait_for_work": _wait(called, 2000, "sleep")}
    return {"pause_decl": declared, "setmask": "3" if is_mac(target) else "2", **waits}


POOL = RuntimePart(_TEXT, ("tw_parallel_for",), _pool_words)


# Memory spread over the nodes of a machine (NUMA), in LLVM IR.
#
# Where the environment says TILEWRIGHT_NUMA=interleave, pages of large blocks and of constants go to the nodes that this process may use,
# in turns (mbind, by number, since libc has no name for it): several threads on several nodes then read with the bandwidth of
# all. Pages of a file are read first, and moved where no other process maps them.

_SPREAD_TEXT = r"""
@tw_numa_variable = private unnamed_addr constant [16 x i8] c"TILEWRIGHT_NUMA\00"
@tw_numa_interleave = private unnamed_addr constant [11 x i8] c"interleave\00"
$spread_declarations
; 0: spread, or not asked for; 1: the system refuses.
define $link i32 @tw_spread(ptr %start, i64 %bytes, i32 %of_file) noinline nounwind {
entry:
$spread
}
"""

_SPREAD = """\
  %nodes = alloca [16 x i64], align 8
  %asked = call ptr @getenv(ptr @tw_numa_variable)
  %unset = icmp eq ptr %asked, null
  br i1 %unset, label %done, label %compare
compare:
  %differs = call i32 @strcmp(ptr %asked, ptr @tw_numa_interleave)
  %other = icmp ne i32 %differs, 0
  br i1 %other, label %done, label %round
round:
  %page32 = call i32 @getpagesize()
  %page = sext i32 %page32 to i64
  %mask = sub i64 0, %page
  %begin = ptrtoint ptr %start to i64
  %behind = add i64 %begin, %bytes
  %up = add i64 %begin, %page
  %up1 = sub i64 %up, 1
  %first = and i64 %up1, %mask
  %last = and i64 %behind, %mask
  %some = icmp ugt i64 %last, %first
  br i1 %some, label %look, label %done
look:
  %length = sub i64 %last, %first
  %address = inttoptr i64 %first to ptr
  call void @llvm.memset.p0.i64(ptr %nodes, i8 0, i64 128, i1 false)
  %known = call i64 (i64, ...) @syscall(i64 $get_mempolicy, ptr null, ptr %nodes, i64 1024, ptr null, i64 4)
  %unknown = icmp ne i64 %known, 0
  br i1 %unknown, label %refused, label %ready
ready:
  %file = icmp ne i32 %of_file, 0
  br i1 %file, label %read, label %bind
read:
  %populated = call i32 @madvise(ptr %address, i64 %length, i32 22)
  br label %bind
bind:
  %bound = call i64 (i64, ...) @syscall(i64 $mbind, ptr %address, i64 %length, i64 3, ptr %nodes, i64 1024, i64 2)
  %unbound = icmp ne i64 %bound, 0
  br i1 %unbound, label %refused, label %done
refused:
  ret i32 1
done:
  ret i32 0"""

_SPREAD_DECLARATIONS = """\
declare ptr @getenv(ptr)
declare i32 @strcmp(ptr, ptr)
declare i32 @getpagesize()
declare i64 @syscall(i64, ...)
declare i32 @madvise(ptr, i64, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"""

_POLICY_CALLS = {"x86_64": ("237", "239"), "aarch64": ("235", "236"), "riscv64": ("235", "236")}
"""The numbers of mbind and get_mempolicy in Linux, by architecture."""


def has_nodes(target: Target) -> bool:
    """Returns whether memory of the target's system can be spread over nodes: Linux, where the calls have known numbers."""
    return is_linux(target) and target.arch in _POLICY_CALLS


def _spread_words(target: Target) -> Mapping[str, str]:
    if not has_nodes(target):
        return {"spread_declarations": "", "spread": "  ret i32 1"}
    mbind, get_mempolicy = _POLICY_CALLS[target.arch]
    text = Template(_SPREAD).substitute(mbind=mbind, get_mempolicy=get_mempolicy)
    return {"spread_declarations": _SPREAD_DECLARATIONS, "spread": text}


SPREAD = RuntimePart(_SPREAD_TEXT, ("tw_spread",), _spread_words)


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
  %spread = call i32 @tw_spread(ptr %raw, i64 %total, i32 0)
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
        "madvise_decl": "declare i32 @madvise(ptr, i64, i32)" if is_linux(target) and not has_nodes(target) else "",
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


# The threads of other libraries (BLAS), in LLVM IR.
#
# Their number belongs to the process, and several threads may be inside of calls at once. So the first one notes the number and
# sets its own, a later one only lowers it, and the last one that returns puts the first number back. A second library waits.

_LIMITS_TEXT = r"""
@tw_limit_lock = $data global i32 0, align 64
@tw_limit_depth = $data global i32 0, align 4
@tw_limit_before = $data global i32 0, align 4
@tw_limit_now = $data global i32 0, align 4
@tw_limit_of = $data global ptr null, align 8

define $link void @tw_limit_threads(ptr %get, ptr %set, i32 %n) noinline nounwind {
entry:
  br label %try
try:
  %held = atomicrmw xchg ptr @tw_limit_lock, i32 1 acquire, align 4
  %busy = icmp ne i32 %held, 0
  br i1 %busy, label %wait, label %own
own:
  %depth = load i32, ptr @tw_limit_depth, align 4
  %first = icmp eq i32 %depth, 0
  br i1 %first, label %save, label %later
later:
  %other = load ptr, ptr @tw_limit_of, align 8
  %same = icmp eq ptr %other, %set
  br i1 %same, label %compare, label %leave
leave:
  store atomic i32 0, ptr @tw_limit_lock release, align 4
  br label %wait
wait:
  %y = call i32 @sched_yield()
  br label %try
save:
  store ptr %set, ptr @tw_limit_of, align 8
  %before = call i32 %get()
  store i32 %before, ptr @tw_limit_before, align 4
  store i32 %before, ptr @tw_limit_now, align 4
  %differs = icmp ne i32 %before, %n
  br i1 %differs, label %change, label %count
compare:
  %now = load i32, ptr @tw_limit_now, align 4
  %less = icmp slt i32 %n, %now
  br i1 %less, label %change, label %count
change:
  store i32 %n, ptr @tw_limit_now, align 4
  call void %set(i32 %n)
  br label %count
count:
  %deeper = add i32 %depth, 1
  store i32 %deeper, ptr @tw_limit_depth, align 4
  store atomic i32 0, ptr @tw_limit_lock release, align 4
  ret void
}

define $link void @tw_restore_threads(ptr %set) noinline nounwind {
entry:
  br label %try
try:
  %held = atomicrmw xchg ptr @tw_limit_lock, i32 1 acquire, align 4
  %busy = icmp ne i32 %held, 0
  br i1 %busy, label %wait, label %own
wait:
  %y = call i32 @sched_yield()
  br label %try
own:
  %depth = load i32, ptr @tw_limit_depth, align 4
  %less = sub i32 %depth, 1
  store i32 %less, ptr @tw_limit_depth, align 4
  %last = icmp eq i32 %less, 0
  %before = load i32, ptr @tw_limit_before, align 4
  %now = load i32, ptr @tw_limit_now, align 4
  %changed = icmp ne i32 %before, %now
  %back = and i1 %last, %changed
  br i1 %back, label %put, label %done
put:
  call void %set(i32 %before)
  br label %done
done:
  store atomic i32 0, ptr @tw_limit_lock release, align 4
  ret void
}
"""

LIMITS = RuntimePart(_LIMITS_TEXT, ("tw_limit_threads", "tw_restore_threads"))


# All parts as one text.

PARTS = [CORES, POOL, SPREAD, MEMORY, TIMING, TILES, LIMITS]
"""The parts of the runtime in the order of the text."""

SYMBOLS = tuple(sorted([symbol for part in PARTS for symbol in part.symbols]))
"""The functions of the runtime that generated code and the call path use."""


SHARED_STATE = "tilewright_runtime_"
"""How the names of the variables begin that the libraries of a process share; a hash of the runtime's text follows."""


IN_CODE, ALONE = "linkonce_odr hidden", "weak_odr hidden"
"""The linkage of the runtime in exported code: linked into code, where what is unused goes, or an object file of its own."""


def runtime_ir(target: Target, linkage: str = "", shared: bool = False) -> str:
    """Return the runtime for ``target`` (POSIX systems). ``linkage``: "" in this process, :data:`IN_CODE` or :data:`ALONE` in
    exported files. ``shared``: for a shared library; all such libraries in a process have the same variables (Linux)."""
    words = {"link": linkage, "data": linkage or "internal"}
    for part in PARTS:
        words.update(part.words(target))
    text = Template("".join([part.text for part in PARTS])).substitute(words)
    return _with_unique_state(text) if shared and _may_be_unique(target) else text


def _may_be_unique(target: Target) -> bool:
    """Returns whether the variables may be unique symbols: on Linux, for processors like this one.

    They are written in assembly, and llvmlite's LLVM reads this machine's alone.
    """
    return is_linux(target) and target.triple.split("-")[0] == default_triple().split("-")[0]


_VARIABLE = re.compile(r"^@(tw_\w+) = \w+ hidden global (.+) (?:zeroinitializer|0|null), align (\d+)$", re.MULTILINE)


def _with_unique_state(text: str) -> str:
    """Returns the runtime with variables of which a process has one, whatever libraries it loads and however.

    ELF calls such symbols unique (``STB_GNU_UNIQUE``); LLVM's IR has no word for them, assembly has. Their names tell which
    runtime they are of, since another one may mean something else by them.
    """
    prefix = f"{SHARED_STATE}{hashlib.sha256(''.join([part.text for part in PARTS]).encode()).hexdigest()[:16]}_"
    lines = []
    for name, kind, align in _VARIABLE.findall(text):
        own, size = prefix + name.removeprefix("tw_"), _bytes_of(kind)
        lines += [
            f".section .bss.{own}, \\22aw\\22, \\22nobits\\22", f".balign {align}", f".type {own}, \\22gnu_unique_object\\22",
            f".size {own}, {size}", f"{own}:", f".zero {size}",
        ]  # fmt: skip
        text = re.sub(rf"@{name}\b", f"@{own}", text)
    text = re.sub(rf"^@({prefix}\w+) = \w+ hidden global (.+) (?:zeroinitializer|0|null),", r"@\1 = external global \2,", text, flags=re.MULTILINE)  # fmt: skip
    return "\n".join([f'module asm "{line}"' for line in [*lines, ".text"]]) + "\n" + text


_WORD = re.compile(r"\[(\d+) x (.+)\]|\{ (.+) \}|i(\d+)|ptr")


def _bytes_of(kind: str) -> int:
    """Returns the size of a type of the runtime's variables where addresses have 64 bits."""
    found = _WORD.fullmatch(kind)
    assert found is not None, kind
    count, element, fields, bits = found.groups()
    if count:
        return int(count) * _bytes_of(element)
    return sum(map(_bytes_of, fields.split(", "))) if fields else int(bits or 64) // 8
