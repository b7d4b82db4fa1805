; What catches a fault: see fault_guard.py, which fills in addresses and places.
declare i32 @_setjmp(ptr) returns_twice
declare void @longjmp(ptr, i32) noreturn
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i32 @sigaction(i32, ptr, ptr)
@inside = internal global i32 0
define void @open() {
  call i32 @pthread_key_create(ptr @inside, ptr null)
  ret void
}
define void @on_fault(i32 %number, ptr %info, ptr %context) {
  %key = load i32, ptr @inside
  %guard = call ptr @pthread_getspecific(i32 %key)
  %code_at = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code_at
  %address_at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address_at
  %is_inside = icmp ne ptr %guard, null
  %is_fault = icmp sgt i32 %code, 0
  %is_ours = and i1 %is_inside, %is_fault
  br i1 %is_ours, label %find, label %hand_on
find:
  %owner_at = getelementptr i64, ptr %guard, i64 64
  %at = load i64, ptr %owner_at
  br label %each_owner
each_owner:
  %n = phi i64 [0, %find], [%next_n, %other_owner]
  %owner_offset = mul i64 %n, 24
  %owner_address = add i64 %owner_offset, ${owners}
  %owner = inttoptr i64 %owner_address to ptr
  %who = load i64, ptr %owner
  %is_who = icmp eq i64 %who, %at
  br i1 %is_who, label %found, label %other_owner
other_owner:
  %next_n = add i64 %n, 1
  %has_more = icmp ult i64 %next_n, ${most}
  br i1 %has_more, label %each_owner, label %hand_on
found:
  %base_at = getelementptr i64, ptr %owner, i64 1
  %base = load i64, ptr %base_at
  %count_at = getelementptr i64, ptr %owner, i64 2
  %count = load i64, ptr %count_at
  br label %each_region
each_region:
  %k = phi i64 [0, %found], [%next_k, %other_region]
  %row_offset = mul i64 %k, ${stride}
  %row_address = add i64 %row_offset, %base
  %row = inttoptr i64 %row_address to ptr
  %r_key_at = getelementptr i8, ptr %row, i64 ${r_key}
  %r_key = load i64, ptr %r_key_at
  %local_at = getelementptr i8, ptr %row, i64 ${local}
  %local = load i64, ptr %local_at
  %length_at = getelementptr i8, ptr %row, i64 ${length}
  %length = load i64, ptr %length_at
  %offset = sub i64 %address, %local
  %is_within = icmp ult i64 %offset, %length
  %is_used = icmp ne i64 %r_key, 0
  %is_it = and i1 %is_within, %is_used
  br i1 %is_it, label %leave, label %other_region
other_region:
  %next_k = add i64 %k, 1
  %has_others = icmp ult i64 %next_k, %count
  br i1 %has_others, label %each_region, label %hand_on
leave:
  %place = getelementptr i64, ptr %guard, i64 65
  store volatile i64 %address, ptr %place
  call i32 @pthread_setspecific(i32 %key, ptr null)
  call void @longjmp(ptr %guard, i32 1)
  unreachable
hand_on:
  %is_bus = icmp eq i32 %number, ${bus}
  %earlier_address = select i1 %is_bus, i64 ${earlier_bus}, i64 ${earlier_segv}
  %earlier = inttoptr i64 %earlier_address to ptr
  %restored = call i32 @sigaction(i32 %number, ptr %earlier, ptr null)
  ret void
}
