"""Softirqs, tasklets, RCU, work queues, the log, interrupts, credentials: the rest of kernel/."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from support.guest import Guest

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Vcpu

# Each function writes down {what, IRQ_FLAGS and CPU}.
FUNCTIONS = """
.text
FUNC_NOTRACE note                        # rdi what
    mov rax, [rip + test_count]
    inc qword ptr [rip + test_count]
    shl rax, 4
    add rax, offset test_log
    mov [rax], rdi
    movzx ecx, byte ptr gs:[IRQ_FLAGS]
    mov [rax + 8], ecx
    mov ecx, gs:[CPU_NUMBER]
    mov [rax + 12], ecx
    ret
ENDFUNC note
FUNC_NOTRACE softirq_noted
    mov edi, 4
    jmp note
ENDFUNC softirq_noted
FUNC_NOTRACE tasklet_noted               # rdi its word
    jmp note
ENDFUNC tasklet_noted
FUNC_NOTRACE rcu_noted                   # rdi rcu_head
    jmp note
ENDFUNC rcu_noted
FUNC_NOTRACE work_noted                  # rdi work
    jmp note
ENDFUNC work_noted
FUNC_NOTRACE irq_noted                   # edi interrupt, rsi dev
    mov rdi, rsi
    call note
    mov eax, 1
    ret
ENDFUNC irq_noted
FUNC_NOTRACE notifier_noted              # rdi block, rsi action, rdx data
    call note
    mov eax, [rdi + 24]                  # what the test wants it to answer
    ret
ENDFUNC notifier_noted
FUNC_NOTRACE synchronizer                # rdi what: noted when all readers are through
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    call synchronize_rcu
    mov rdi, rbx
    call note
    xor edi, edi
    call do_exit
ENDFUNC synchronizer
FUNC_NOTRACE flusher                     # rdi work: noted when it is done
    push rbp
    mov rbp, rsp
    push rbx
    push rbx
    mov rbx, rdi
    call flush_work
    lea rdi, [rbx + 1]
    call note
    xor edi, edi
    call do_exit
ENDFUNC flusher
FUNC_NOTRACE slow_work                   # rdi work: takes three ticks
    push rbp
    mov rbp, rsp
    push rdi
    push rdi
    mov edi, 3
    call schedule_timeout_uninterruptible
    pop rdi
    call note
    leave
    ret
ENDFUNC slow_work
.data
test_count:
    .quad 0
test_log:
    .zero 4096
"""
HARDIRQ, SOFTIRQ, IRQS_OFF = 8, 0x10, 1


class Recorder:
    """A booted guest with the test's functions in it."""

    def __init__(self) -> None:
        self.guest = Guest(cpus=2, boot=True)
        self.functions = self.guest.load(FUNCTIONS)

    def log(self) -> list[tuple[int, int, int]]:
        """(what, flags, CPU) of each function that ran, and forget them."""
        memory = self.guest.memory
        count = memory.u64(self.functions["test_count"])
        raw = memory.read(self.functions["test_log"], 16 * count)
        memory.set_u64(self.functions["test_count"], 0)
        return [struct.unpack_from("<QII", raw, 16 * i) for i in range(count)]

    def what(self) -> list[int]:
        return [what for what, _, _ in self.log()]

    def work(self, function: str = "work_noted") -> int:
        guest = self.guest
        work = guest.room(guest.constant("DWORK_SIZE"))
        guest.memory.set_u64(work + guest.constant("WORK_FUNC"), self.functions[function])
        return work


@pytest.fixture(scope="module")
def shared() -> Iterator[Recorder]:
    recorder = Recorder()
    try:
        yield recorder
    finally:
        recorder.guest.close()


@pytest.fixture
def recorder(shared: Recorder) -> Recorder:
    shared.guest.reset()
    shared.guest.settle()
    shared.log()
    return shared


@pytest.fixture
def guest(recorder: Recorder) -> Guest:
    return recorder.guest


# --- softirqs and tasklets ------------------------------------------------------------------------


def test_a_raised_softirq_runs_with_its_flag_set(recorder: Recorder) -> None:
    guest = recorder.guest
    vector = guest.constant("BLOCK_SOFTIRQ")
    guest.call("open_softirq", vector, recorder.functions["softirq_noted"])
    count = guest.label("kstat_softirqs") + 8 * vector
    before = guest.memory.u64(count)
    guest.call("raise_softirq", vector)
    assert recorder.log() == []  # outside of interrupts ksoftirqd has to be woken for it
    guest.settle()
    ((what, flags, cpu),) = recorder.log()
    assert (what, cpu) == (4, 0)
    assert flags & SOFTIRQ
    assert not flags & (HARDIRQ | IRQS_OFF)
    assert guest.memory.u64(count) == before + 1
    guest.call("__raise_softirq_irqoff", vector)
    guest.call("do_softirq")
    assert recorder.what() == [4]


def test_softirqs_wait_while_bottom_halves_are_off(recorder: Recorder) -> None:
    guest = recorder.guest
    lock = guest.words([0])
    vector = guest.constant("BLOCK_SOFTIRQ")
    guest.call("open_softirq", vector, recorder.functions["softirq_noted"])
    guest.call("_raw_spin_lock_bh", lock)
    guest.call("__raise_softirq_irqoff", vector)
    guest.call("do_softirq")
    assert recorder.log() == []
    guest.call("_raw_spin_unlock_bh", lock)
    assert recorder.what() == [4]


def test_tasklets_run_once_for_each_scheduling(recorder: Recorder) -> None:
    guest = recorder.guest
    size = guest.constant("TASKLET_SIZE")
    low, high, disabled = (guest.room(size) for _ in range(3))
    for number, tasklet in enumerate((low, high, disabled)):
        guest.call("tasklet_init", tasklet, recorder.functions["tasklet_noted"], 100 + number)
    guest.memory.set_u32(disabled + guest.constant("TASKLET_COUNT"), 1)
    for tasklet in (low, low, disabled):
        guest.call("tasklet_schedule", tasklet)
    guest.call("__tasklet_hi_schedule", high)
    guest.call("do_softirq")
    assert recorder.what() == [101, 100]
    guest.memory.set_u32(disabled + guest.constant("TASKLET_COUNT"), 0)
    guest.call("do_softirq")
    assert recorder.what() == [102]
    guest.call("tasklet_kill", disabled)
    guest.settle()


# --- RCU ------------------------------------------------------------------------------------------


def test_callbacks_come_after_a_grace_period_and_in_order(recorder: Recorder) -> None:
    guest = recorder.guest
    heads = [guest.room(16) for _ in range(5)]
    for head in heads:
        guest.call("call_rcu", head, recorder.functions["rcu_noted"])
    assert recorder.log() == []
    guest.tick(5)
    log = recorder.log()
    assert [what for what, _, _ in log] == heads
    assert all(flags & SOFTIRQ for _, flags, _ in log)


def test_a_reader_holds_the_grace_period_up(recorder: Recorder) -> None:
    guest = recorder.guest
    guest.call("__rcu_read_lock")
    head = guest.room(16)
    nesting = guest.machine.cpus[0].current + CONSTANTS["TASK_RCU_NESTING"]
    # An idle CPU counts as quiet, so let this one look busy while its task reads.
    idle = guest.machine.cpus[0].percpu + CONSTANTS["RQ_IDLE"]
    task = guest.memory.u64(idle)
    guest.call("call_rcu", head, recorder.functions["rcu_noted"])
    guest.memory.set_u64(idle, 0)
    vcpu = guest.machine.cpus[0]
    for _ in range(4):
        guest.machine.run(lambda: guest.machine.call("__sysvec_apic_timer_interrupt", 0))
        guest.call("do_softirq")
    assert guest.memory.u32(nesting) == 1
    assert recorder.log() == []
    guest.memory.set_u64(idle, task)
    guest.call("__rcu_read_unlock")
    assert vcpu.current == task
    guest.tick(5)
    assert recorder.what() == [head]


def test_objects_are_freed_behind_the_readers(recorder: Recorder) -> None:
    guest = recorder.guest
    memory = guest.call("__kmalloc", 96, 0xCC0)
    guest.call("kvfree_call_rcu", memory + 32, 32)
    guest.tick(5)
    assert guest.call("__kmalloc", 96, 0xCC0) == memory


def test_synchronize_rcu_returns(recorder: Recorder) -> None:
    guest = recorder.guest
    guest.spawn(recorder.functions["synchronizer"], 7, cpu=1)
    guest.settle()
    assert recorder.log() == []
    guest.tick(6)
    assert recorder.what() == [7]


# --- work queues ----------------------------------------------------------------------------------


def test_work_runs_on_the_cpu_it_was_queued_on(recorder: Recorder) -> None:
    guest = recorder.guest
    queue = guest.label("system_wq")
    works = [recorder.work() for _ in range(4)]
    for number, work in enumerate(works):
        assert guest.call_int("queue_work_on", number % 2, queue, work) == 1
        assert guest.call_int("queue_work_on", number % 2, queue, work) == 0  # already queued
    guest.settle()
    log = recorder.log()
    assert sorted(what for what, _, _ in log) == works
    assert {what: cpu for what, _, cpu in log} == {w: n % 2 for n, w in enumerate(works)}
    assert not any(flags & (SOFTIRQ | IRQS_OFF) for _, flags, _ in log)


def test_delayed_work_waits_and_can_be_moved_or_cancelled(recorder: Recorder) -> None:
    guest = recorder.guest
    queue = guest.label("system_wq")
    delayed, moved, cancelled = (recorder.work() for _ in range(3))
    for work in (delayed, moved, cancelled):
        assert guest.call_int("queue_delayed_work_on", 0, queue, work, 10) == 1
    assert guest.call_int("cancel_delayed_work", cancelled) == 1
    assert guest.call_int("cancel_delayed_work", cancelled) == 0
    assert guest.call_int("mod_delayed_work_on", 0, queue, moved, 3) == 1
    guest.tick(6)
    assert recorder.what() == [moved]
    guest.tick(10)
    assert recorder.what() == [delayed]


def test_cancelling_waits_for_work_that_runs(recorder: Recorder) -> None:
    guest = recorder.guest
    work = recorder.work()
    guest.call("queue_work_on", 1, guest.label("system_wq"), work)
    assert guest.call_int("cancel_work_sync", work) == 1
    guest.settle()
    assert recorder.log() == []
    assert guest.call_int("cancel_work_sync", work) == 0
    assert guest.call_int("queue_work_on", 1, guest.label("system_wq"), work) == 1
    guest.settle()
    assert recorder.what() == [work]


def test_flushing_waits_for_work_that_runs(recorder: Recorder) -> None:
    guest = recorder.guest
    queue = guest.call("alloc_workqueue", guest.text(b"test"), 0, 1)
    work = recorder.work("slow_work")
    guest.call("queue_work_on", 0, queue, work)
    guest.settle()
    guest.spawn(recorder.functions["flusher"], work, cpu=1)
    guest.settle()
    assert recorder.log() == []
    in_flight = queue + guest.constant("WORKQUEUE_IN_FLIGHT")
    assert guest.memory.u64(in_flight) == 1
    guest.tick(8)
    assert recorder.what() == [work, work + 1]
    assert guest.memory.u64(in_flight) == 0
    guest.call("destroy_workqueue", queue)


def test_statistics_are_folded_once_a_second(guest: Guest) -> None:
    totals = guest.label("vm_stat")
    before = guest.memory.u64(totals + 8)
    guest.tick(520)
    assert guest.memory.u64(totals + 8) - before > 250


# --- the log --------------------------------------------------------------------------------------


@pytest.fixture
def console(guest: Guest) -> Iterator[list[bytes]]:
    """Lines the guest's console shows."""
    lines: list[bytes] = []

    def show(vcpu: Vcpu) -> None:
        text, length = vcpu.get("rdi", "rsi")
        lines.append(guest.memory.read(text, length))

    known = guest.machine.hypercalls.get(CONSTANTS["HC_PRINTK"])
    guest.machine.hypercalls[CONSTANTS["HC_PRINTK"]] = show
    enabled = guest.label("console_enabled")
    was = guest.memory.u32(enabled)
    guest.memory.set_u32(enabled, 1)
    yield lines
    guest.memory.set_u32(enabled, was)
    if known is None:
        del guest.machine.hypercalls[CONSTANTS["HC_PRINTK"]]
    else:
        guest.machine.hypercalls[CONSTANTS["HC_PRINTK"]] = known


def test_a_line_reaches_ring_and_console(guest: Guest, console: list[bytes]) -> None:
    sequence = guest.call("prb_next_seq")
    form = guest.text(b"\x016%s has %d of %x\n")
    guest.call("_printk", form, guest.text(b"eth0"), -3 & 0xFFFFFFFF, 0xBEEF)
    assert console[-1] == b"eth0 has -3 of beef"
    record = guest.call("prb_read_valid", sequence)
    assert guest.memory.u64(record + guest.constant("PRINTK_SEQ")) == sequence
    assert guest.memory.u32(record + guest.constant("PRINTK_LEVEL")) == 6


def test_lines_wait_while_somebody_has_the_console(guest: Guest, console: list[bytes]) -> None:
    console.clear()
    assert guest.call_int("console_trylock") == 1
    assert guest.call_int("is_console_locked") == 1
    for number in range(3):
        guest.call("_printk", guest.text(b"line %d"), number)
    assert console == []
    guest.call("console_unlock")
    assert console == [b"line 0", b"line 1", b"line 2"]


def test_the_ring_keeps_the_newest(guest: Guest) -> None:
    slots = guest.constant("PRINTK_SLOTS")
    first = guest.call("prb_next_seq")
    for number in range(slots + 5):
        guest.call("_printk", guest.text(b"%d"), number)
        guest.reset()
    oldest = guest.call("prb_read_valid", first)
    assert guest.memory.u64(oldest + guest.constant("PRINTK_SEQ")) == first + 5
    assert guest.memory.cstring(oldest + guest.constant("PRINTK_TEXT"))[:1] == b"5"
    assert guest.call("prb_read_valid", first + slots + 5) == 0


def test_long_lines_are_cut(guest: Guest) -> None:
    sequence = guest.call("prb_next_seq")
    guest.call("_printk", guest.text(b"%s"), guest.text(b"x" * 400))
    record = guest.call("prb_read_valid", sequence)
    length = guest.memory.u32(record + guest.constant("PRINTK_LEN"))
    assert length == guest.constant("PRINTK_TEXT_MAX")


def test_audit_records_go_to_the_log(guest: Guest, console: list[bytes]) -> None:
    record = guest.call("audit_log_start", 0, 0xCC0, 1300)
    guest.call("audit_log_format", record, guest.text(b"op=%s res=%d"), guest.text(b"test"), 1)
    guest.call("audit_log_format", record, guest.text(b" more=%x"), 0xAB)
    guest.call("audit_log_end", record)
    stamp, _, rest = console[-1].partition(b"): ")
    assert stamp.startswith(b"audit: type=1300 audit(")
    assert rest == b"op=test res=1 more=ab"


# --- interrupts -----------------------------------------------------------------------------------


def test_the_attributes_of_an_interrupt(recorder: Recorder) -> None:
    guest = recorder.guest
    descriptor, page = guest.call("irq_to_desc", 7), guest.room(64)
    shows = [s.address for s in guest.image.symbols if s.name == "name_show"]
    assert len(shows) >= 3
    for number, name in enumerate((b"first", b"second")):
        handler = recorder.functions["irq_noted"]
        assert not guest.call_int(
            "request_threaded_irq", 7, handler, 0, 0, guest.text(name), number
        )

    def show(function: str) -> bytes:
        near = [s.address for s in guest.image.symbols if s.name == function]
        address = min(near, key=lambda a: abs(a - guest.label("free_irq")))
        length = guest.call(address, descriptor, 0, page)
        return guest.memory.read(page, length)

    assert show("name_show") == b"edge\n"
    assert show("hwirq_show") == b"7\n"
    assert show("actions_show") == b"first,second\n"
    for number in range(2):
        guest.call("free_irq", 7, number)
    assert show("actions_show") == b""


def test_every_handler_of_an_interrupt_is_called(recorder: Recorder) -> None:
    guest = recorder.guest
    names = [guest.text(b"one"), guest.text(b"two")]
    for device, name in enumerate(names, 1):
        handler = recorder.functions["irq_noted"]
        assert guest.call_int("request_threaded_irq", 5, handler, 0, 0, name, device) == 0
    vcpu = guest.machine.cpus[1]
    vcpu.set_word("HOST_ARG", 5)
    guest.machine.run(lambda: guest.machine.interrupt(vcpu, "asm_common_interrupt"))
    log = recorder.log()
    assert [(what, cpu) for what, _, cpu in log] == [(1, 1), (2, 1)]
    assert all(flags & (HARDIRQ | IRQS_OFF) == HARDIRQ | IRQS_OFF for _, flags, _ in log)
    assert guest.call("free_irq", 5, 1) == names[0]
    assert guest.call("free_irq", 5, 1) == 0
    vcpu.set_word("HOST_ARG", 5)
    guest.machine.run(lambda: guest.machine.interrupt(vcpu, "asm_common_interrupt"))
    assert recorder.what() == [2]
    guest.call("free_irq", 5, 2)
    assert guest.call_int("request_threaded_irq", 99, handler, 0, 0, name, 1) == -22


# --- credentials, notifiers, random numbers -------------------------------------------------------


def test_capabilities_follow_the_credentials(guest: Guest) -> None:
    admin = guest.constant("CAP_SYS_ADMIN")
    assert guest.call_int("capable", admin) == 1
    new = guest.call("prepare_creds")
    effective = new + guest.constant("CRED_CAP_EFFECTIVE")
    guest.memory.set_u64(effective, guest.memory.u64(effective) & ~(1 << admin))
    old = guest.call("override_creds", new)
    assert guest.call_int("capable", admin) == 0
    assert guest.call_int("capable", guest.constant("CAP_KILL")) == 1
    guest.call("revert_creds", old)
    assert guest.call_int("capable", admin) == 1
    guest.call("abort_creds", new)
    guest.tick(5)
    assert guest.call_int("has_capability", guest.label("init_task"), admin) == 1


def test_committed_credentials_replace_the_old_ones(guest: Guest) -> None:
    current = guest.machine.cpus[0].current
    cred = current + CONSTANTS["TASK_CRED"]
    was = guest.memory.u64(cred)
    first, second = guest.call("prepare_creds"), guest.call("prepare_exec_creds")
    guest.call("commit_creds", first)
    assert guest.memory.u64(cred) == first
    guest.call("commit_creds", second)
    guest.tick(5)
    assert guest.call("prepare_creds") == first  # its memory was free again
    guest.call("abort_creds", first)
    guest.call("exit_creds", current)
    assert guest.memory.u64(cred) == 0
    guest.memory.set_u64(cred, was)
    guest.tick(5)


def test_notifiers_are_called_by_priority_until_one_stops(recorder: Recorder) -> None:
    guest = recorder.guest
    head = guest.room(64)
    blocks = {}
    for priority, answer in ((1, 0), (5, 0), (3, 0x8000)):
        block = guest.room(32)
        function = recorder.functions["notifier_noted"]
        guest.memory.write(block, struct.pack("<QQiIQ", function, 0, priority, 0, answer))
        assert guest.call_int("blocking_notifier_chain_register", head, block) == 0
        blocks[priority] = block
    assert guest.call_int("blocking_notifier_chain_register", head, blocks[3]) == -17
    assert guest.call_int("blocking_notifier_call_chain", head, 1, 2) == 0x8000
    assert recorder.what() == [blocks[5], blocks[3]]


def test_random_numbers_differ_and_repeat_with_the_machine(guest: Guest) -> None:
    numbers = {guest.call("get_random_u64") for _ in range(200)}
    assert len(numbers) == 200
    ones = sum(number.bit_count() for number in numbers)
    assert 5800 < ones < 7000
    room = guest.room(64, fill=0xAA)
    guest.call("get_random_bytes", room, 13)
    assert guest.memory.read(room, 13) != b"\xaa" * 13
    assert guest.memory.read(room + 13, 8) == b"\xaa" * 8
    again = []
    for _ in range(2):
        other = Guest(cpus=1, boot=True)
        try:
            again.append([other.call("get_random_u32") for _ in range(10)])
        finally:
            other.close()
    assert again[0] == again[1]
