"""The fork-join pool and the cores on which its threads run, in LLVM IR.

One job at a time. The caller writes the job's fields, then publishes ``epoch`` = (sequence << 16 | threads); a worker
that sees a new epoch and whose index is below ``threads`` claims its chunk, runs it and counts ``pending`` down. When the
caller has run its own chunk, it claims those that no worker has begun with, so that a worker that sleeps or has lost its
core costs no more than the job takes on one thread. A chunk is claimed by raising its number in ``claims`` to the epoch;
a worker that comes late finds it raised, reads nothing else of the job, and the fields cannot change under a chunk that
was claimed. Waiting spins for some microseconds, then sleeps on a condition variable. While it spins it offers its core
to others, because the thread that it waits for may be on the same one; and a worker that finds itself on the core of the
caller, or of a worker before it, moves to a free one (Linux): the kernel leaves two such threads together for many
milliseconds, since neither of them sleeps. "Publish, then look for sleepers" against
"register as sleeper, then look at the epoch", all sequentially consistent, loses no wake-up.

Nested calls, and calls from a second thread while a job runs, run serially in their caller. Workers are detached and
block all signals. After a fork the child, seeing another process id, starts with a pool of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..machine.target import Target

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


def _words(target: Target) -> Mapping[str, str]:
    declared, called = {
        "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
        "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    }.get(target.arch, ("", ""))
    waits = {"wait_for_job": _wait(called, 4000, "block"), "wait_for_work": _wait(called, 2000, "sleep")}
    return {"pause_decl": declared, "setmask": "3" if is_mac(target) else "2", **waits}


POOL = RuntimePart(_TEXT, ("tw_parallel_for",), _words)
