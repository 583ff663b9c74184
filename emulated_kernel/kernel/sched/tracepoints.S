# The tracepoints of include/trace/events/sched.h that this kernel passes, with their arguments.

.text

DEFINE_TRACE sched_waking               # rsi task
DEFINE_TRACE sched_wakeup               # rsi task
DEFINE_TRACE sched_wakeup_new           # rsi task
DEFINE_TRACE sched_switch               # esi whether preempted, rdx previous, rcx next, r8d its state
DEFINE_TRACE sched_migrate_task         # rsi task, edx CPU it goes to
DEFINE_TRACE sched_process_free         # rsi task
DEFINE_TRACE sched_process_exit         # rsi task
DEFINE_TRACE sched_process_wait         # esi pid waited for, 0 for any
DEFINE_TRACE sched_process_fork         # rsi parent, rdx child
DEFINE_TRACE sched_process_exec         # rsi task, edx its pid before, rcx bprm
