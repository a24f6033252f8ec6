"""The clock and loops that time calls, in LLVM IR."""

from .runtime_part import RuntimePart, is_mac

_TEXT = r"""
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
    _TEXT, ("tw_now", "tw_time", "tw_time_cold", "tw_touch"), lambda target: {"clock": "6" if is_mac(target) else "1"}
)
