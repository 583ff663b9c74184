# The probes of the events of interrupts (include/trace/events/irq.h).

SOFTIRQ_VEC = 8
SOFTIRQ_BYTES = 12

# void trace_event_raw_event_softirq(file, unsigned int vec_nr)
FUNC_NOTRACE trace_event_raw_event_softirq
    push rbp
    mov rbp, rsp
    EVENT_RESERVE SOFTIRQ_BYTES, .Lout
    mov [r10 + ENTRY + SOFTIRQ_VEC], esi
    EVENT_COMMIT
.Lout:
    pop rbp
    ret
ENDFUNC trace_event_raw_event_softirq

IRQ_HANDLER_ENTRY_IRQ = 8
IRQ_HANDLER_ENTRY_NAME = 12             # __data_loc
IRQ_HANDLER_ENTRY_BYTES = 16            # and the name behind it

# void trace_event_raw_event_irq_handler_entry(file, int irq, struct irqaction *action)
FUNC_NOTRACE trace_event_raw_event_irq_handler_entry
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov ebx, esi
    mov rsi, [rdx + IRQACTION_NAME]
    EVENT_STRING IRQ_HANDLER_ENTRY_BYTES, .Lout
    mov [r10 + ENTRY + IRQ_HANDLER_ENTRY_IRQ], ebx
    ASSIGN_STR IRQ_HANDLER_ENTRY_NAME, IRQ_HANDLER_ENTRY_BYTES
    EVENT_COMMIT
.Lout:
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC trace_event_raw_event_irq_handler_entry

IRQ_HANDLER_EXIT_IRQ = 8
IRQ_HANDLER_EXIT_RET = 12
IRQ_HANDLER_EXIT_BYTES = 16

# void trace_event_raw_event_irq_handler_exit(file, int irq, struct irqaction *action, int ret)
FUNC_NOTRACE trace_event_raw_event_irq_handler_exit
    push rbp
    mov rbp, rsp
    EVENT_RESERVE IRQ_HANDLER_EXIT_BYTES, .Lout
    mov [r10 + ENTRY + IRQ_HANDLER_EXIT_IRQ], esi
    mov [r10 + ENTRY + IRQ_HANDLER_EXIT_RET], ecx
    EVENT_COMMIT
.Lout:
    pop rbp
    ret
ENDFUNC trace_event_raw_event_irq_handler_exit
