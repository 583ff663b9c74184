"""Clocks, the timer wheel, high-resolution timers and what sleeps by them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.guest import Guest

# Each function writes down when it ran: {what, when} pairs at test_log.
FUNCTIONS = """
.text
FUNC_NOTRACE note                        # rdi what
    mov rax, [rip + test_count]
    inc qword ptr [rip + test_count]
    shl rax, 4
    add rax, offset test_log
    mov [rax], rdi
    mov rcx, [rip + jiffies_64]
    mov [rax + 8], rcx
    ret
ENDFUNC note
FUNC_NOTRACE timer_fired                 # rdi timer_list
    jmp note
ENDFUNC timer_fired
FUNC_NOTRACE hrtimer_fired               # rdi hrtimer; once
    call note
    xor eax, eax
    ret
ENDFUNC hrtimer_fired
FUNC_NOTRACE hrtimer_repeats             # rdi hrtimer: every 20 ms, three times
    push rdi
    call note
    pop rdi
    cmp qword ptr [rip + test_count], 3
    jae 1f
    mov rsi, [rdi + HRTIMER_EXPIRES]
    mov rdx, 20000000
    call hrtimer_forward
    mov eax, 1
    ret
1:
    xor eax, eax
    ret
ENDFUNC hrtimer_repeats
FUNC_NOTRACE sleeper                     # rdi ticks to sleep; notes what is left
    push rbp
    mov rbp, rsp
    call schedule_timeout_interruptible
    mov rdi, rax
    call note
    xor edi, edi
    call do_exit
ENDFUNC sleeper
FUNC_NOTRACE napper                      # rdi nanoseconds
    push rbp
    mov rbp, rsp
    mov esi, 1
    mov edx, 1
    call hrtimer_nanosleep
    movsxd rdi, eax
    call note
    xor edi, edi
    call do_exit
ENDFUNC napper
FUNC_NOTRACE msleeper                    # rdi milliseconds
    push rbp
    mov rbp, rsp
    call msleep
    xor edi, edi
    call note
    xor edi, edi
    call do_exit
ENDFUNC msleeper
FUNC_NOTRACE usleeper                    # rdi microseconds, and as many again at most
    push rbp
    mov rbp, rsp
    lea esi, [rdi + rdi]
    mov edx, TASK_UNINTERRUPTIBLE
    call usleep_range_state
    xor edi, edi
    call note
    xor edi, edi
    call do_exit
ENDFUNC usleeper
.data
test_count:
    .quad 0
test_log:
    .zero 4096
"""

examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Recorder:
    """A booted guest with the test's functions in it."""

    def __init__(self) -> None:
        self.guest = Guest(cpus=2, boot=True)
        self.functions = self.guest.load(FUNCTIONS)

    def clear(self) -> None:
        self.guest.memory.set_u64(self.functions["test_count"], 0)

    def log(self) -> list[tuple[int, int]]:
        """(what, jiffies) of each function that ran."""
        count = self.guest.memory.u64(self.functions["test_count"])
        raw = self.guest.memory.read(self.functions["test_log"], 16 * count)
        return [struct.unpack_from("<QQ", raw, 16 * i) for i in range(count)]

    def timer(self) -> int:
        timer = self.guest.room(self.guest.constant("TIMER_SIZE"))
        self.guest.call("init_timer_key", timer, self.functions["timer_fired"], 0)
        return timer

    def hrtimer(self, function: str = "hrtimer_fired") -> int:
        guest = self.guest
        timer = guest.room(guest.constant("HRTIMER_SIZE"))
        guest.call("hrtimer_init", timer, 1, 1)
        guest.memory.set_u64(timer + guest.constant("HRTIMER_FUNCTION"), self.functions[function])
        return timer


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
    shared.clear()
    return shared


@pytest.fixture
def guest(recorder: Recorder) -> Guest:
    return recorder.guest


# --- clocks ---------------------------------------------------------------------------------------


def test_the_clocks_agree(guest: Guest) -> None:
    before = guest.call("ktime_get")
    span = guest.room(16)
    guest.call("ktime_get_real_ts64", span)
    seconds, nanoseconds = struct.unpack("<QQ", guest.memory.read(span, 16))
    offset = guest.memory.u64(guest.label("tk_core") + guest.constant("TK_OFFS_REAL"))
    elapsed = seconds * 10**9 + nanoseconds - offset
    assert before < elapsed < guest.call("ktime_get")
    guest.tick(300)
    assert guest.call("ktime_get") - before >= 300 * 4_000_000
    assert guest.call("ktime_get_real_seconds") == pytest.approx(seconds + 1, abs=1)


def test_the_coarse_clock_moves_with_the_tick_only(guest: Guest) -> None:
    span = guest.room(16)

    def coarse() -> bytes:
        guest.call("ktime_get_coarse_real_ts64", span)
        return guest.memory.read(span, 16)

    first = coarse()
    assert coarse() == first
    guest.tick()
    assert coarse() != first


def test_the_wall_clock_can_be_set(guest: Guest) -> None:
    moment = guest.words([1_000_000_000, 500])
    assert guest.call_int("do_settimeofday64", moment) == 0
    assert guest.call("ktime_get_real_seconds") == 1_000_000_000
    assert guest.call_int("do_settimeofday64", guest.words([1, 10**9])) == -22


@examples
@given(seconds=st.integers(-60_000_000_000, 250_000_000_000))
def test_the_calendar(recorder: Recorder, seconds: int) -> None:
    guest = recorder.guest
    guest.reset()
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    fields = guest.room(40)
    guest.call("rtc_time64_to_tm", seconds, fields)
    values = struct.unpack("<8i", guest.memory.read(fields, 32))
    assert values == (
        moment.second,
        moment.minute,
        moment.hour,
        moment.day,
        moment.month - 1,
        moment.year - 1900,
        (moment.weekday() + 1) % 7,
        moment.timetuple().tm_yday - 1,
    )
    assert guest.call_long("rtc_tm_to_time64", fields) == seconds


@examples
@given(value=st.integers(0, 1 << 40))
def test_conversions(recorder: Recorder, value: int) -> None:
    guest = recorder.guest
    small = value & 0x3FFFFFFF
    assert guest.call("__msecs_to_jiffies", small) == -(-small // 4)
    assert guest.call("jiffies_to_msecs", small) == small * 4
    assert guest.call("nsecs_to_jiffies", value) == value // 4_000_000
    assert guest.call("round_jiffies", value) >= value - 62


# --- the timer wheel ------------------------------------------------------------------------------


def _level(delta: int) -> int:
    return next(level for level in range(9) if delta < 63 << 3 * level)


@examples
@given(clock=st.integers(1, 1 << 40), delta=st.integers(0, (63 << 24) - 1))
def test_a_timer_goes_to_the_finest_level_that_reaches_it(
    recorder: Recorder, clock: int, delta: int
) -> None:
    guest = recorder.guest
    guest.reset()
    when = guest.words([0])
    index = guest.call32("calc_wheel_index", clock + delta, clock, when)
    level = _level(delta)
    slot = (clock + delta >> 3 * level) + 1
    assert (index, guest.memory.u64(when)) == (64 * level + slot % 64, slot << 3 * level)


def test_timers_expire_in_time_and_never_early(recorder: Recorder) -> None:
    guest = recorder.guest
    start = guest.jiffies
    delays = [0, 1, 2, 5, 62, 63, 64, 100, 300, 500, 510, 900]
    timers = {}
    for delay in delays:
        timers[timer := recorder.timer()] = start + delay
        assert guest.call_int("mod_timer", timer, start + delay) == 0
    guest.tick(1100)
    fired = dict(recorder.log())
    assert set(fired) == set(timers)
    for timer, expires in timers.items():
        granularity = 8 ** _level(expires - start)
        assert expires < fired[timer] <= expires + granularity


def test_timers_can_be_moved_and_taken_back(recorder: Recorder) -> None:
    guest = recorder.guest
    moved, deleted, reduced, idle = (recorder.timer() for _ in range(4))
    now = guest.jiffies
    for timer in (moved, deleted, reduced):
        guest.call("mod_timer", timer, now + 20)
    assert guest.call_int("mod_timer", moved, now + 5) == 1
    assert guest.call_int("timer_delete", deleted) == 1
    assert guest.call_int("timer_delete", deleted) == 0
    assert guest.call_int("timer_delete_sync", idle) == 0
    assert guest.call_int("mod_timer_pending", idle, now + 1) == 0
    assert guest.call_int("timer_reduce", reduced, now + 90) == 1
    guest.tick(30)
    assert recorder.log() == [(moved, now + 6), (reduced, now + 21)]


def test_a_timer_stays_on_the_cpu_it_was_put_on(recorder: Recorder) -> None:
    guest = recorder.guest
    timer = recorder.timer()
    guest.memory.set_u64(timer + guest.constant("TIMER_EXPIRES"), guest.jiffies + 3)
    guest.call("add_timer_on", timer, 1)
    base = guest.percpu("TIMER_BASE", 1)
    pending = guest.memory.read(base + guest.constant("TBASE_PENDING"), 72)
    assert any(pending)
    guest.tick(5)
    assert [what for what, _ in recorder.log()] == [timer]


def test_a_long_pause_of_the_tick_makes_timers_late_but_loses_none(recorder: Recorder) -> None:
    guest = recorder.guest
    start = guest.jiffies
    timers = [recorder.timer() for _ in range(5)]
    for delay, timer in zip((3, 40, 70, 600, 5000), timers, strict=True):
        guest.call("mod_timer", timer, start + delay)
    clock = guest.machine.cpus[0].word("CLOCK_PTR")
    guest.memory.set_u64(clock, guest.memory.u64(clock) + 6000 * 4_000_000)
    guest.tick(1)
    assert [what for what, _ in recorder.log()] == timers


# --- high-resolution timers -----------------------------------------------------------------------


def test_hrtimers_expire_in_order(recorder: Recorder) -> None:
    guest = recorder.guest
    delays = [30, 10, 50, 20, 40]
    timers = {}
    for delay in delays:
        timers[delay] = recorder.hrtimer()
        guest.call("hrtimer_start_range_ns", timers[delay], delay * 1_000_000, 0, 1)
    assert guest.call_int("hrtimer_try_to_cancel", timers[50]) == 1
    assert guest.call_int("hrtimer_try_to_cancel", timers[50]) == 0
    guest.tick(20)
    assert [what for what, _ in recorder.log()] == [timers[d] for d in (10, 20, 30, 40)]
    assert guest.call_int("hrtimer_active", timers[10]) == 0


def test_the_device_is_told_of_the_first_event(recorder: Recorder) -> None:
    guest = recorder.guest
    guest.tick()
    timer = recorder.hrtimer()
    guest.call("hrtimer_start_range_ns", timer, 1_000_000, 0, 1)
    expires = guest.memory.u64(timer + guest.constant("HRTIMER_EXPIRES"))
    tick_timer = guest.machine.cpus[0].percpu + guest.constant("TICK_TIMER")
    tick = guest.memory.u64(tick_timer + guest.constant("HRTIMER_EXPIRES"))
    assert guest.percpu("TICK_DEVICE_NEXT") == min(tick, expires)
    assert guest.call("hrtimer_get_next_event") == min(tick, expires)
    guest.call("hrtimer_cancel", timer)


def test_a_timer_may_start_itself_again(recorder: Recorder) -> None:
    guest = recorder.guest
    start = guest.jiffies
    timer = recorder.hrtimer("hrtimer_repeats")
    guest.call("hrtimer_start_range_ns", timer, 8_000_000, 0, 1)
    guest.tick(30)
    assert [what for what, _ in recorder.log()] == [timer] * 3
    when = [jiffies - start for _, jiffies in recorder.log()]
    assert when[1] - when[0] == 5
    assert when[2] - when[1] == 5


@examples
@given(expires=st.integers(0, 10**6), late=st.integers(-100, 10**6), interval=st.integers(1, 10**4))
def test_forwarding_leaves_now_behind(
    recorder: Recorder, expires: int, late: int, interval: int
) -> None:
    guest = recorder.guest
    guest.reset()
    timer = guest.room(64)
    at = timer + guest.constant("HRTIMER_EXPIRES")
    guest.memory.set_u64(at, expires)
    now = max(expires + late, 0)
    overruns = guest.call("hrtimer_forward", timer, now, interval)
    if now < expires:
        assert (overruns, guest.memory.u64(at)) == (0, expires)
    else:
        assert overruns == (now - expires) // interval + 1
        assert guest.memory.u64(at) == expires + overruns * interval
        assert guest.memory.u64(at) - interval <= now < guest.memory.u64(at)


# --- sleeping -------------------------------------------------------------------------------------


def test_sleepers_wake_when_their_time_has_come(recorder: Recorder) -> None:
    guest = recorder.guest
    start = guest.jiffies
    for cpu, ticks in ((0, 10), (1, 3)):
        guest.spawn(recorder.functions["sleeper"], ticks, cpu=cpu)
    guest.settle()
    assert recorder.log() == []
    guest.tick(15)
    assert recorder.log() == [(0, start + 4), (0, start + 11)]


def test_a_sleeper_woken_early_learns_how_early(recorder: Recorder) -> None:
    guest = recorder.guest
    task = guest.spawn(recorder.functions["sleeper"], 50)
    guest.settle()
    guest.tick(10)
    assert guest.call_int("wake_up_process", task) == 1
    guest.settle()
    assert [left for left, _ in recorder.log()] == [40]


def test_nanosleep_sleeps_at_least_that_long(recorder: Recorder) -> None:
    guest = recorder.guest
    start = guest.jiffies
    guest.spawn(recorder.functions["napper"], 18_000_000)
    guest.settle()
    guest.tick(4)
    assert recorder.log() == []
    guest.tick(4)
    ((result, when),) = recorder.log()
    assert result == 0
    assert when - start in {5, 6}


@pytest.mark.parametrize(("function", "amount"), [("msleeper", 21), ("usleeper", 21_000)])
def test_short_sleeps(recorder: Recorder, function: str, amount: int) -> None:
    guest = recorder.guest
    start = guest.jiffies
    guest.spawn(recorder.functions[function], amount)
    guest.settle()
    guest.tick(20)
    ((_, when),) = recorder.log()
    assert 6 <= when - start <= 12
