; A guard is 512 bytes for jmp_buf, then what the call is for, then the address that it faulted at.
define i32 @call_${name}(ptr %result, ptr %exception, i64 %at, i64 %one, i64 %other) {
  %guard = alloca [66 x i64], align 16
  %ignored = alloca i64
  %owner = getelementptr i64, ptr %guard, i64 64
  %place = getelementptr i64, ptr %guard, i64 65
  store volatile i64 %at, ptr %owner
  %key = load i32, ptr @inside
  %again = call i32 @_setjmp(ptr %guard) returns_twice
  %faulted = icmp ne i32 %again, 0
  br i1 %faulted, label %caught, label %try
try:
  %function = inttoptr i64 ${function} to ptr
  call i32 @pthread_setspecific(i32 %key, ptr %guard)
  %status = call i32 %function(ptr %result, ptr %exception, i64 %at, i64 %one, i64 %other)
  call i32 @pthread_setspecific(i32 %key, ptr null)
  ret i32 %status
caught:
  %recover = inttoptr i64 ${recover} to ptr
  %address = load volatile i64, ptr %place
  store i64 0, ptr %result
  %done = call i32 %recover(ptr %ignored, ptr %exception, i64 %at, i64 %address, i64 ${arriving})
  ret i32 0
}
