"""TCP: with a peer on the wire, and between the guest's own sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from support.guest import Guest
from support.net import (
    ACK,
    CLOSE_WAIT,
    EADDRINUSE,
    EAGAIN,
    ECONNREFUSED,
    EINVAL,
    EPIPE,
    ESTABLISHED,
    FIN,
    FIN_WAIT2,
    GUEST_IP,
    MSG_DONTWAIT,
    MSG_PEEK,
    PSH,
    RST,
    SYN,
    TIME_WAIT,
    Segment,
    Sockets,
    Wire,
    connected_guest,
    first_missing,
    next_jiffy,
)

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.network import Network, ip_frame


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[Guest, Network]]:
    with connected_guest() as both:
        yield both


@pytest.fixture
def guest(machine: tuple[Guest, Network]) -> Guest:
    machine[0].reset()
    next_jiffy(machine[0])
    return machine[0]


@pytest.fixture
def sockets(guest: Guest) -> Sockets:
    return Sockets(guest)


@pytest.fixture
def wire(machine: tuple[Guest, Network]) -> Wire:
    return Wire(*machine)


def _handshake(wire: Wire, port: int, isn: int = 1000, source: int = 5000) -> tuple[int, int]:
    """Our next sequence number and the guest's."""
    (answer,) = wire.tcp(Segment(source, port, isn, 0, SYN, b""))
    assert (answer.flags, answer.ack) == (SYN | ACK, isn + 1)
    assert wire.tcp(Segment(source, port, isn + 1, answer.seq + 1, ACK, b"")) == []
    return isn + 1, (answer.seq + 1) & 0xFFFFFFFF


# --- TCP with the peer ----------------------------------------------------------------------------


def test_a_connection_from_outside(wire: Wire, sockets: Sockets) -> None:
    listener = sockets.listen(GUEST_IP, 80)
    assert sockets.accept(listener) == EAGAIN
    mine, theirs = _handshake(wire, 80)
    connection = sockets.accept(listener)
    assert connection > 0
    assert sockets.state(connection) == ESTABLISHED
    (answer,) = wire.tcp(Segment(5000, 80, mine, theirs, ACK | PSH, b"GET /"))
    assert (answer.flags, answer.ack) == (ACK, mine + 5)
    assert sockets.receive(connection, 100) == b"GET /"
    assert sockets.send(connection, b"200 OK") == 6
    (answer,) = wire.segments()
    assert (answer.flags, answer.seq, answer.data) == (ACK | PSH, theirs, b"200 OK")
    (answer,) = wire.tcp(Segment(5000, 80, mine + 5, theirs + 6, FIN | ACK, b""))
    assert answer.ack == mine + 6
    assert sockets.state(connection) == CLOSE_WAIT
    assert sockets.receive(connection, 100) == b""
    sockets.close(connection)
    sockets.close(listener)


def test_a_closed_port_answers_with_a_reset(wire: Wire) -> None:
    (answer,) = wire.tcp(Segment(5001, 81, 77, 0, SYN, b""))
    assert (answer.flags, answer.ack, answer.seq) == (RST | ACK, 78, 0)
    (answer,) = wire.tcp(Segment(5001, 81, 77, 4242, ACK, b""))
    assert (answer.flags, answer.seq) == (RST, 4242)
    assert wire.tcp(Segment(5001, 81, 77, 0, RST, b"")) == []


def test_a_lost_answer_to_a_syn_is_sent_again(wire: Wire, sockets: Sockets, guest: Guest) -> None:
    listener = sockets.listen(GUEST_IP, 82)
    first = wire.tcp(Segment(5002, 82, 500, 0, SYN, b""))
    second = wire.tcp(Segment(5002, 82, 500, 0, SYN, b""))
    assert [s.flags for s in first + second] == [SYN | ACK, SYN | ACK]
    assert first[0].seq == second[0].seq
    guest.tick(guest.constant("TCP_TIMEOUT_INIT") + 20)  # nobody asked again, it is sent anyway
    (third,) = wire.segments(82)
    assert third == first[0]
    sockets.close(listener)


def test_segments_out_of_order_are_putfirst_missing(wire: Wire, sockets: Sockets) -> None:
    listener = sockets.listen(GUEST_IP, 83)
    mine, theirs = _handshake(wire, 83, source=5003)
    connection = sockets.accept(listener)
    pieces = [(6, b"World"), (11, b"!"), (3, b"lo "), (0, b"Hello ")]
    for offset, data in pieces:
        answers = wire.tcp(Segment(5003, 83, mine + offset, theirs, ACK, data))
        assert answers[-1].ack == (mine if offset else mine + 12)
    assert sockets.receive(connection, 100) == b"Hello World!"
    answers = wire.tcp(Segment(5003, 83, mine, theirs, ACK, b"Hello "))  # once more
    assert answers[-1].ack == mine + 12
    assert sockets.receive(connection, 100) == EAGAIN
    sockets.close(connection)
    sockets.close(listener)


def test_three_duplicate_acknowledgments_bring_the_segment_again(
    wire: Wire, sockets: Sockets, machine: tuple[Guest, Network]
) -> None:
    listener = sockets.listen(GUEST_IP, 84)
    mine, theirs = _handshake(wire, 84, source=5004)
    connection = sockets.accept(listener)
    assert sockets.send(connection, b"a" * 400 + b"b" * 400) == 800
    again = [wire.tcp(Segment(5004, 84, mine, theirs, ACK, b"")) for _ in range(4)]
    assert [len(answers) for answers in again] == [0, 0, 1, 0]
    assert again[2][0].seq == theirs
    assert sockets.field(connection, "TP_TOTAL_RETRANS") == 1
    assert wire.tcp(Segment(5004, 84, mine, theirs + 800, ACK, b"")) == []
    assert sockets.field(connection, "TP_PACKETS_OUT") == 0
    sockets.close(connection)
    sockets.close(listener)


def test_a_reset_ends_the_connection(wire: Wire, sockets: Sockets) -> None:
    listener = sockets.listen(GUEST_IP, 85)
    mine, theirs = _handshake(wire, 85, source=5005)
    connection = sockets.accept(listener)
    assert wire.tcp(Segment(5005, 85, mine, theirs, RST | ACK, b"")) == []
    assert sockets.receive(connection, 10) == -104  # ECONNRESET
    sockets.close(connection)
    sockets.close(listener)


def test_what_lies_outside_the_window_is_refused(wire: Wire, sockets: Sockets) -> None:
    listener = sockets.listen(GUEST_IP, 86)
    mine, theirs = _handshake(wire, 86, source=5006)
    connection = sockets.accept(listener)
    (answer,) = wire.tcp(Segment(5006, 86, mine + 100_000, theirs, ACK, b"far"))
    assert answer.ack == mine
    (answer,) = wire.tcp(Segment(5006, 86, mine + 1, theirs, RST, b""))  # not exactly in sequence
    assert (answer.flags, answer.ack) == (ACK, mine)
    assert sockets.state(connection) == ESTABLISHED
    sockets.close(connection)
    sockets.close(listener)


def test_part_of_a_segment_may_be_acknowledged(wire: Wire, sockets: Sockets) -> None:
    listener = sockets.listen(GUEST_IP, 91)
    mine, theirs = _handshake(wire, 91, source=5011)
    connection = sockets.accept(listener)
    sockets.send(connection, b"abcdefghij")
    wire.segments()
    for _ in range(4):
        answers = wire.tcp(Segment(5011, 91, mine, theirs + 4, ACK, b""))
        if answers:
            break
    assert [(s.seq, s.data) for s in answers] == [((theirs + 4) & 0xFFFFFFFF, b"efghij")]
    for sock in (connection, listener):
        sockets.close(sock)


def test_a_spoilt_segment_of_a_connection_changes_nothing(
    wire: Wire, sockets: Sockets, guest: Guest
) -> None:
    listener = sockets.listen(GUEST_IP, 92)
    mine, theirs = _handshake(wire, 92, source=5012)
    connection = sockets.accept(listener)
    references = sockets.field(connection, "SK_REFCNT")
    body = struct.pack(">HHIIBBHHH", 5012, 92, mine, theirs, 0x50, ACK, 65535, 0x1234, 0)
    assert wire.send(ip_frame(6, body + b"bad sum", 1)) == []
    assert sockets.receive(connection, 10) == EAGAIN
    assert sockets.field(connection, "SK_REFCNT") == references
    for sock in (connection, listener):
        sockets.close(sock)


def test_the_last_acknowledgment_is_repeated_in_time_wait(wire: Wire, sockets: Sockets) -> None:
    listener = sockets.listen(GUEST_IP, 93)
    mine, theirs = _handshake(wire, 93, source=5013)
    connection = sockets.accept(listener)
    sockets.close(connection)
    (fin,) = wire.segments(93)
    assert fin.flags & FIN
    closing = Segment(5013, 93, mine, theirs + 1, FIN | ACK, b"")
    (last,) = wire.tcp(closing)
    assert (last.flags, last.ack) == (ACK, mine + 1)
    assert wire.tcp(closing) == [last]
    sockets.close(listener)


def _pass_time(guest: Guest, ticks: int) -> None:
    """A pause without interrupts, ended by one tick."""
    clock = guest.machine.cpus[0].word("CLOCK_PTR")
    guest.memory.set_u64(clock, guest.memory.u64(clock) + ticks * 4_000_000)
    guest.tick()


def test_what_is_not_acknowledged_is_sent_again_ever_later(
    wire: Wire, sockets: Sockets, guest: Guest
) -> None:
    listener = sockets.listen(GUEST_IP, 87)
    mine, theirs = _handshake(wire, 87, source=5007)
    connection = sockets.accept(listener)
    assert sockets.send(connection, b"anybody there?") == 14
    (first,) = wire.segments(87)
    start = guest.jiffies
    again = []
    for _ in range(1900):
        guest.tick()
        if wire.segments(87):
            again.append(guest.jiffies - start)
    initial = guest.constant("TCP_TIMEOUT_INIT")
    assert [round(ticks / initial) for ticks in again] == [1, 3, 7]
    assert sockets.field(connection, "TP_SND_CWND") == 1
    assert wire.tcp(Segment(5007, 87, mine, theirs + 14, ACK, b"")) == []
    assert sockets.field(connection, "TP_PACKETS_OUT") == 0
    guest.tick(600)
    assert wire.segments(87) == []
    assert first.data == b"anybody there?"
    for sock in (connection, listener):
        sockets.close(sock)


def test_a_connection_is_given_up_in_the_end(wire: Wire, sockets: Sockets, guest: Guest) -> None:
    listener = sockets.listen(GUEST_IP, 88)
    _handshake(wire, 88, source=5008)
    connection = sockets.accept(listener)
    assert sockets.send(connection, b"hello?") == 6
    sent = len(wire.segments(88))
    for _ in range(20):
        _pass_time(guest, 40_000)
        sent += len(wire.segments(88))
    assert sockets.receive(connection, 10) == -110  # ETIMEDOUT
    assert sent == 1 + guest.constant("TCP_RETRIES")
    for sock in (connection, listener):
        sockets.close(sock)


def test_the_last_segment_is_probed_when_its_acknowledgment_is_late(
    wire: Wire, sockets: Sockets, guest: Guest
) -> None:
    listener = sockets.listen(GUEST_IP, 89)
    mine, theirs = _handshake(wire, 89, source=5009)
    connection = sockets.accept(listener)
    sockets.send(connection, b"one")
    wire.segments(89)
    assert wire.tcp(Segment(5009, 89, mine, theirs + 3, ACK, b"")) == []
    assert 0 < sockets.field(connection, "TP_SRTT_US") < 8 * 4000
    rto = sockets.field(connection, "ICSK_RTO")
    assert rto == guest.constant("TCP_RTO_MIN")
    guest.memory.set_u32(sockets.sk(connection) + guest.constant("ICSK_RTO"), 200)
    sockets.send(connection, b"two")
    wire.segments(89)
    guest.tick(rto + 8)
    (probe,) = wire.segments(89)
    assert (probe.seq, probe.data) == ((theirs + 3) & 0xFFFFFFFF, b"two")
    assert sockets.field(connection, "TP_SND_CWND") > 1  # no loss yet
    for sock in (connection, listener):
        sockets.close(sock)


def test_acknowledgments_may_wait_for_more_data(wire: Wire, sockets: Sockets, guest: Guest) -> None:
    listener = sockets.listen(GUEST_IP, 90)
    mine, theirs = _handshake(wire, 90, source=5010)
    connection = sockets.accept(listener)
    answers = [
        wire.tcp(Segment(5010, 90, mine + 5 * number, theirs, ACK | PSH, b"small"))
        for number in range(20)
    ]
    assert [len(each) for each in answers] == [1] * 16 + [0] * 4
    guest.tick(guest.constant("TCP_DELACK_MIN") + 2)
    (late,) = wire.segments(90)
    assert late.ack == mine + 100
    assert sockets.receive(connection, 200) == b"small" * 20
    assert wire.tcp(Segment(5010, 90, mine + 100, theirs, ACK, b"x")) == []
    assert sockets.receive(connection, 200) == b"x"
    (at_once,) = wire.segments(90)  # the reader took all there was
    assert at_once.ack == mine + 101
    for sock in (connection, listener):
        sockets.close(sock)


def test_nothing_is_left_of_connections_in_the_end(sockets: Sockets, guest: Guest) -> None:
    hash_at, hash_size = guest.label("tcp_ehash"), 8 * guest.constant("INET_HASH_SIZE")
    objects = guest.memory.u64(guest.label("skbuff_head_cache")) + guest.constant("CACHE_IN_USE")

    def is_empty() -> bool:
        return not any(guest.memory.read(hash_at, hash_size))

    for _ in range(40):  # what other tests left behind gives up, too
        _pass_time(guest, 40_000)
    assert is_empty()
    in_use = guest.memory.u64(objects)
    listener, client, server = _pair(sockets, 8011)
    assert sockets.send(client, b"read") == 4
    assert sockets.receive(server, 10) == b"read"
    assert not is_empty()
    for sock in (client, server, listener):
        sockets.close(sock)
    assert not is_empty()  # TIME_WAIT
    _pass_time(guest, guest.constant("TCP_TIMEWAIT_LEN") + 512)  # the wheel's grain over there
    assert is_empty()
    assert guest.memory.u64(objects) == in_use


# --- between the guest's own sockets ----


def _pair(sockets: Sockets, port: int) -> tuple[int, int, int]:
    listener = sockets.listen("127.0.0.1", port)
    client = sockets.create(socket.SOCK_STREAM)
    assert sockets.operate(client, "CONNECT", sockets.address("127.0.0.1", port), 16, 0) == 0
    server = sockets.accept(listener)
    assert server > 0
    return listener, client, server


def test_the_way_of_bytes_over_loopback(sockets: Sockets, guest: Guest) -> None:
    listener, client, server = _pair(sockets, 8020)
    calls = guest.calls_of(lambda: sockets.send(client, b"bytes"))
    way = ["sock_sendmsg", "inet_sendmsg", "tcp_sendmsg", "lock_sock_nested"]
    way += ["tcp_sendmsg_locked", "tcp_push", "__tcp_push_pending_frames", "tcp_write_xmit"]
    way += ["__tcp_transmit_skb", "__ip_queue_xmit", "ip_local_out", "__dev_queue_xmit"]
    way += ["dev_hard_start_xmit", "loopback_xmit", "__netif_rx", "enqueue_to_backlog"]
    way += ["__local_bh_enable_ip", "do_softirq", "__do_softirq", "net_rx_action"]
    way += ["process_backlog", "netif_receive_skb_core", "ip_rcv", "tcp_v4_early_demux"]
    way += ["tcp_v4_rcv", "tcp_v4_do_rcv", "tcp_rcv_established", "tcp_queue_rcv"]
    way += ["tcp_data_ready", "sock_def_readable", "release_sock"]
    assert first_missing(way, calls) is None
    for sock in (client, server, listener):
        sockets.close(sock)


def test_bytes_go_both_ways_over_loopback(sockets: Sockets) -> None:
    listener, client, server = _pair(sockets, 8001)
    assert sockets.send(client, b"question") == 8
    assert sockets.receive(server, 100, MSG_PEEK) == b"question"
    assert sockets.receive(server, 3) == b"que"
    assert sockets.receive(server, 100) == b"stion"
    assert sockets.receive(server, 100) == EAGAIN
    assert sockets.send(server, b"answer") == 6
    assert sockets.receive(client, 100) == b"answer"
    for sock in (client, server, listener):
        sockets.close(sock)


def test_more_than_the_window_arrives_whole_andfirst_missing(sockets: Sockets) -> None:
    listener, client, server = _pair(sockets, 8002)
    data = bytes((i * 7 + (i >> 8)) & 0xFF for i in range(300_000))
    sent, got = 0, b""
    for _ in range(200):
        if sent < len(data):
            count = sockets.send(client, data[sent : sent + 40_000])
            sent += max(count, 0)
        part = sockets.receive(server, 50_000)
        got += part if isinstance(part, bytes) else b""
        sockets.guest.reset()
        if len(got) == len(data):
            break
    assert got == data
    assert sockets.field(client, "TP_BYTES_ACKED") >= 300_000 - 65_535
    for sock in (client, server, listener):
        sockets.close(sock)


def test_a_send_buffer_fills_up(sockets: Sockets) -> None:
    listener, client, server = _pair(sockets, 8003)
    sent = 0
    for _ in range(100):
        count = sockets.send(client, b"z" * 10_000)
        if count == EAGAIN:
            break
        sent += count
        sockets.guest.reset()
    else:
        pytest.fail("nothing ever pushed back")
    assert sent > 200_000
    for sock in (client, server, listener):
        sockets.close(sock)


def test_states_of_an_orderly_end(sockets: Sockets) -> None:
    listener, client, server = _pair(sockets, 8004)
    assert sockets.operate(client, "SHUTDOWN", 1) == 0
    assert (sockets.state(client), sockets.state(server)) == (FIN_WAIT2, CLOSE_WAIT)
    assert sockets.receive(server, 10) == b""
    assert sockets.send(client, b"x") == EPIPE
    assert sockets.send(server, b"last words") == 10
    assert sockets.receive(client, 20) == b"last words"
    sockets.close(server)
    assert sockets.state(client) == TIME_WAIT
    assert sockets.receive(client, 10) == b""
    sockets.close(client)
    sockets.close(listener)


def test_writing_to_a_closed_connection_raises_sigpipe(sockets: Sockets, guest: Guest) -> None:
    listener, client, server = _pair(sockets, 8010)
    assert sockets.operate(client, "SHUTDOWN", 1) == 0
    task = guest.machine.cpus[0].current
    pending = task + CONSTANTS["TASK_SIGSET"]
    message = sockets._message(guest.place(b"x"), 1, MSG_DONTWAIT)
    flags = guest.memory.u32(task + CONSTANTS["TASK_FLAGS"])
    guest.memory.set_u32(task + CONSTANTS["TASK_FLAGS"], 0)  # kernel threads get no signals
    assert guest.call_long("sock_sendmsg", client, message) == EPIPE
    guest.memory.set_u32(task + CONSTANTS["TASK_FLAGS"], flags)
    assert guest.memory.u64(pending) & 1 << (13 - 1)
    guest.memory.set_u64(pending, 0)
    guest.memory.set_u32(task + CONSTANTS["TASK_SIGPENDING"], 0)
    for sock in (client, server, listener):
        sockets.close(sock)


def test_connecting_to_nobody_is_refused(sockets: Sockets) -> None:
    client = sockets.create(socket.SOCK_STREAM)
    address = sockets.address("127.0.0.1", 8099)
    assert sockets.operate(client, "CONNECT", address, 16, 0) == ECONNREFUSED
    sockets.close(client)


def test_a_port_belongs_to_one_socket(sockets: Sockets) -> None:
    first = sockets.listen("0.0.0.0", 8005)
    second = sockets.create(socket.SOCK_STREAM)
    address = sockets.address("127.0.0.1", 8005)
    assert sockets.operate(second, "BIND", address, 16) == EADDRINUSE
    sockets.close(first)
    assert sockets.operate(second, "BIND", address, 16) == 0
    assert sockets.operate(second, "BIND", address, 16) == EINVAL  # it has one already
    sockets.close(second)


def test_unread_data_makes_close_a_reset(sockets: Sockets) -> None:
    listener, client, server = _pair(sockets, 8006)
    assert sockets.send(client, b"never read") == 10
    sockets.close(server)
    assert sockets.receive(client, 10) == -104
    sockets.close(client)
    sockets.close(listener)


def test_closing_a_listener_resets_who_was_not_accepted(sockets: Sockets) -> None:
    listener = sockets.listen("127.0.0.1", 8007)
    client = sockets.create(socket.SOCK_STREAM)
    assert sockets.operate(client, "CONNECT", sockets.address("127.0.0.1", 8007), 16, 0) == 0
    sockets.close(listener)
    assert sockets.receive(client, 10) == -104
    sockets.close(client)


def test_poll_tells_what_can_be_done(sockets: Sockets) -> None:
    pollin, pollout = 0x41, 0x104
    listener = sockets.listen("127.0.0.1", 8008)
    assert sockets.poll(listener) == 0
    client = sockets.create(socket.SOCK_STREAM)
    assert sockets.operate(client, "CONNECT", sockets.address("127.0.0.1", 8008), 16, 0) == 0
    assert sockets.poll(listener) == pollin
    server = sockets.accept(listener)
    assert sockets.poll(server) == pollout
    sockets.send(client, b"!")
    assert sockets.poll(server) == pollin | pollout
    for sock in (client, server, listener):
        sockets.close(sock)


def test_connections_leak_no_memory(sockets: Sockets, guest: Guest) -> None:
    cache = guest.memory.u64(guest.label("skbuff_head_cache"))
    in_use = cache + guest.constant("CACHE_IN_USE")

    def life(port: int) -> None:
        listener, client, server = _pair(sockets, port)
        sockets.send(client, b"some" * 1000)
        sockets.receive(server, 10_000)
        sockets.close(server)
        sockets.close(client)
        sockets.close(listener)

    life(8100)
    before = guest.memory.u64(in_use)
    for port in range(8101, 8106):
        life(port)
    assert guest.memory.u64(in_use) == before
