# Where interrupts and preemption go off and on, for whoever measures how long they are off
# (kernel/trace/trace_preemptirq.c, kernel/sched/core.c). The macros of percpu.inc call these.

.data
.balign 8
DEFINE_STATIC_CALL_NULL trace_hardirqs_off
DEFINE_STATIC_CALL_NULL trace_hardirqs_on
DEFINE_STATIC_CALL_NULL trace_preempt_off
DEFINE_STATIC_CALL_NULL trace_preempt_on
DEFINE_STATIC_CALL_NULL stop_critical_timings
DEFINE_STATIC_CALL_NULL start_critical_timings
.text
