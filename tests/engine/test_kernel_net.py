"""The guest's network: frames in at the adapter, answers out, and bytes between its own sockets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from support.guest import Guest

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.network import PEER_MAC, Network, internet_checksum, ip_frame

GUEST_IP, PEER_IP = "10.0.2.15", "10.0.2.2"
EAGAIN, EPIPE, EADDRINUSE, ECONNREFUSED, EINVAL = -11, -32, -98, -111, -22
MSG_DONTWAIT, MSG_PEEK, MSG_NOSIGNAL = 0x40, 0x2, 0x4000
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
ESTABLISHED, FIN_WAIT2, TIME_WAIT, CLOSE_WAIT = 1, 5, 6, 8


@dataclass
class Segment:
    """A TCP segment as it went over the wire."""

    source: int
    target: int
    seq: int
    ack: int
    flags: int
    data: bytes


class Sockets:
    """Sockets of the guest by their struct socket, without files or system calls."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def create(self, kind: int) -> int:
        guest = self.guest
        out = guest.words([0])
        assert guest.call_int("sock_create", socket.AF_INET, kind, 0, out) == 0
        return guest.memory.u64(out)

    def address(self, ip: str, port: int) -> int:
        family = struct.pack("<H", socket.AF_INET)
        return self.guest.place(family + struct.pack(">H", port) + socket.inet_aton(ip) + bytes(8))

    def operate(self, sock: int, operation: str, *arguments: int) -> int:
        guest = self.guest
        operations = guest.memory.u64(sock + guest.constant("SOCKET_OPS"))
        function = guest.memory.u64(operations + guest.constant(f"OPS_{operation}"))
        return guest.call_int(function, sock, *arguments)

    def sk(self, sock: int) -> int:
        return self.guest.memory.u64(sock + self.guest.constant("SOCKET_SK"))

    def state(self, sock: int) -> int:
        return self.guest.memory.u8(self.sk(sock) + self.guest.constant("SK_STATE"))

    def field(self, sock: int, name: str) -> int:
        return self.guest.memory.u32(self.sk(sock) + self.guest.constant(name))

    def bound(self, kind: int, ip: str, port: int) -> int:
        sock = self.create(kind)
        assert self.operate(sock, "BIND", self.address(ip, port), 16) == 0
        return sock

    def listen(self, ip: str, port: int, backlog: int = 5) -> int:
        sock = self.bound(socket.SOCK_STREAM, ip, port)
        assert self.operate(sock, "LISTEN", backlog) == 0
        return sock

    def accept(self, listener: int) -> int:
        """A connection, or an error below 0."""
        guest = self.guest
        size = guest.constant("SOCKET_SIZE")
        new = guest.call("__kmalloc", size, 0xDC0)  # GFP_KERNEL | GFP_ZERO
        guest.memory.write(new, guest.memory.read(listener, size))
        guest.memory.set_u64(new + guest.constant("SOCKET_SK"), 0)
        error = self.operate(listener, "ACCEPT", new, 0x800, 0)
        return error if error < 0 else new

    def _message(self, base: int, count: int, flags: int, name: int = 0, length: int = 0) -> int:
        header = struct.pack("<QIIIIQQQ", name, length, flags, 1, 0, base, count, 0)
        return self.guest.place(header)

    def send(self, sock: int, data: bytes, to: int = 0) -> int:
        flags = MSG_DONTWAIT | MSG_NOSIGNAL
        message = self._message(self.guest.place(data), len(data), flags, to, 16 if to else 0)
        return self.guest.call_long("sock_sendmsg", sock, message)

    def receive(self, sock: int, size: int, flags: int = 0) -> bytes | int:
        room = self.guest.room(size)
        message = self._message(room, size, flags | MSG_DONTWAIT)
        got = self.guest.call_long("sock_recvmsg", sock, message, flags | MSG_DONTWAIT)
        return got if got < 0 else self.guest.memory.read(room, got)

    def receive_from(self, sock: int, size: int) -> tuple[bytes, tuple[str, int]]:
        room, name = self.guest.room(size), self.guest.room(16)
        message = self._message(room, size, MSG_DONTWAIT, name)
        got = self.guest.call_long("sock_recvmsg", sock, message, MSG_DONTWAIT)
        assert got >= 0
        port, ip = struct.unpack(">2xH4s", self.guest.memory.read(name, 8))
        return self.guest.memory.read(room, got), (socket.inet_ntoa(ip), port)

    def poll(self, sock: int) -> int:
        operations = self.guest.memory.u64(sock + self.guest.constant("SOCKET_OPS"))
        function = self.guest.memory.u64(operations + self.guest.constant("OPS_POLL"))
        return self.guest.call_int(function, 0, sock, 0)

    def close(self, sock: int) -> None:
        assert self.operate(sock, "RELEASE") == 0


@pytest.fixture(scope="module")
def machine() -> Iterator[tuple[Guest, Network]]:
    guest = Guest(cpus=1, boot=True)
    try:
        yield guest, Network(guest.machine)
    finally:
        guest.close()


@pytest.fixture
def guest(machine: tuple[Guest, Network]) -> Guest:
    machine[0].reset()
    _tick(machine[0])
    return machine[0]


def _tick(guest: Guest) -> None:
    """Time goes on, so that the limit of ICMP messages in one tick is not reached."""
    jiffies = guest.label("jiffies_64")
    guest.memory.set_u64(jiffies, guest.memory.u64(jiffies) + 1)


@pytest.fixture
def sockets(guest: Guest) -> Sockets:
    return Sockets(guest)


class Wire:
    """The peer's end of the wire."""

    def __init__(self, guest: Guest, network: Network) -> None:
        self._guest, self._network = guest, network

    def send(self, frame: bytes) -> list[bytes]:
        """Hand a frame in; what the guest sent because of it, checksums verified."""
        self.pending()
        vcpu = self._guest.machine.cpus[0]
        assert self._guest.machine.run(lambda: self._network.receive(frame, vcpu))
        return self.pending()

    def pending(self) -> list[bytes]:
        """What the guest has sent since somebody looked."""
        self._guest.machine.run(self._network._transmit)
        frames = [self._checked(sent) for sent in self._network.sent]
        self._network.sent.clear()
        return frames

    @staticmethod
    def _checked(frame: bytes) -> bytes:
        if frame[12:14] == b"\x08\x00":
            packet = frame[14:]
            header = 4 * (packet[0] & 15)
            (total,) = struct.unpack(">H", packet[2:4])
            assert total == len(packet)
            assert internet_checksum(packet[:header]) == 0
            if packet[9] in {6, 17}:
                pseudo = packet[12:20] + struct.pack(">BBH", 0, packet[9], total - header)
                assert internet_checksum(pseudo + packet[header:]) == 0
        return frame

    def tcp(self, segment: Segment) -> list[Segment]:
        """Send a segment; the segments that answer it."""
        head = struct.pack(
            ">HHIIBBHHH",
            segment.source,
            segment.target,
            segment.seq & 0xFFFFFFFF,
            segment.ack & 0xFFFFFFFF,
            0x50,
            segment.flags,
            65535,
            0,
            0,
        )
        body = head + segment.data
        pseudo = socket.inet_aton(PEER_IP) + socket.inet_aton(GUEST_IP)
        pseudo += struct.pack(">BBH", 0, 6, len(body))
        check = internet_checksum(pseudo + body)
        body = body[:16] + struct.pack(">H", check) + body[18:]
        return [self._parse(frame) for frame in self.send(ip_frame(6, body, 1))]

    def segments(self, port: int = 0) -> list[Segment]:
        """The TCP segments the guest has sent (from `port`) since somebody looked."""
        parsed = (self._parse(frame) for frame in self.pending() if frame[23] == 6)
        return [segment for segment in parsed if port in {0, segment.source}]

    @staticmethod
    def _parse(frame: bytes) -> Segment:
        packet = frame[34:]
        source, target, seq, ack, offset, flags = struct.unpack(">HHIIBB", packet[:14])
        return Segment(source, target, seq, ack, flags, packet[4 * (offset >> 4) :])


@pytest.fixture
def wire(machine: tuple[Guest, Network]) -> Wire:
    return Wire(*machine)


# --- from the wire --------------------------------------------------------------------------------


def _echo(sequence: int, data: bytes, kind: int = 8) -> bytes:
    message = struct.pack(">BBHHH", kind, 0, 0, 0x77, sequence) + data
    check = internet_checksum(message)
    return message[:2] + struct.pack(">H", check) + message[4:]


@pytest.mark.parametrize("size", [0, 1, 56, 57, 1400])
def test_a_ping_is_answered_with_its_own_data(wire: Wire, size: int) -> None:
    data = bytes(i & 0xFF for i in range(size))
    (answer,) = wire.send(ip_frame(1, _echo(3, data), 1))
    assert answer[:6] == PEER_MAC
    assert answer[26:34] == socket.inet_aton(GUEST_IP) + socket.inet_aton(PEER_IP)
    assert answer[34:] == _echo(3, data, kind=0)


@pytest.mark.parametrize("spoilt", [14, 16, 24, 38])
def test_a_frame_with_a_wrong_byte_is_dropped(wire: Wire, spoilt: int) -> None:
    frame = bytearray(ip_frame(1, _echo(1, b"data"), 1))
    frame[spoilt] ^= 0x10
    assert wire.send(bytes(frame)) == []


def test_padding_of_short_frames_is_not_part_of_the_packet(wire: Wire) -> None:
    (answer,) = wire.send(ip_frame(1, _echo(1, b"x"), 1).ljust(60, b"\xff"))
    assert answer[34:] == _echo(1, b"x", kind=0)


def test_frames_for_somebody_else_are_ignored(wire: Wire) -> None:
    frame = ip_frame(1, _echo(1, b"x"), 1)
    assert wire.send(b"\x02" + frame[1:]) == []  # another link address
    header = bytearray(frame[14:34])
    header[16:20], header[10:12] = socket.inet_aton("10.0.2.99"), b"\0\0"
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2, "big")
    assert wire.send(frame[:14] + bytes(header) + frame[34:]) == []  # another network address


def test_who_has_is_answered_and_the_asker_remembered(wire: Wire, guest: Guest) -> None:
    asker = bytes.fromhex("02aabbccddee")
    body = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1) + asker + socket.inet_aton("10.0.2.77")
    body += bytes(6) + socket.inet_aton(GUEST_IP)
    (answer,) = wire.send(b"\xff" * 6 + asker + b"\x08\x06" + body)
    assert answer[:6] == asker
    assert answer[20:22] == b"\0\2"
    assert answer[22:32] == bytes.fromhex("525400123456") + socket.inet_aton(GUEST_IP)
    echo = bytearray(ip_frame(1, _echo(1, b"x"), 1))
    echo[26:30], echo[24:26] = socket.inet_aton("10.0.2.77"), b"\0\0"
    echo[24:26] = internet_checksum(bytes(echo[14:34])).to_bytes(2, "big")
    (reply,) = wire.send(bytes(echo))
    assert reply[:6] == asker


def test_a_packet_waits_for_the_link_address_of_its_neighbour(wire: Wire) -> None:
    echo = bytearray(ip_frame(1, _echo(9, b"patience"), 1))
    echo[26:30], echo[24:26] = socket.inet_aton("10.0.2.88"), b"\0\0"
    echo[24:26] = internet_checksum(bytes(echo[14:34])).to_bytes(2, "big")
    (question,) = wire.send(bytes(echo))
    assert question[12:14] == b"\x08\x06"
    assert question[38:42] == socket.inet_aton("10.0.2.88")
    neighbour = bytes.fromhex("020000000088")
    body = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 2) + neighbour + socket.inet_aton("10.0.2.88")
    body += bytes.fromhex("525400123456") + socket.inet_aton(GUEST_IP)
    (reply,) = wire.send(bytes.fromhex("525400123456") + neighbour + b"\x08\x06" + body)
    assert reply[:6] == neighbour
    assert reply[34:] == _echo(9, b"patience", kind=0)


def test_a_datagram_nobody_wants_is_reported(wire: Wire) -> None:
    datagram = struct.pack(">HHHH", 4000, 9, 8 + 5, 0) + b"hello"
    frame = ip_frame(17, datagram, 5)
    (answer,) = wire.send(frame)
    assert answer[34:36] == b"\3\3"
    assert internet_checksum(answer[34:]) == 0
    assert answer[42:] == frame[14:]


def test_the_receive_ring_can_be_filled_to_its_end(
    wire: Wire, guest: Guest, machine: tuple[Guest, Network]
) -> None:
    for sequence in range(3 * guest.constant("E1000_RING_SIZE")):
        _tick(guest)
        assert len(wire.send(ip_frame(1, _echo(sequence, b""), sequence))) == 1
    assert machine[1].dropped == 0


def test_packets_leak_no_memory(wire: Wire, guest: Guest) -> None:
    cache = guest.memory.u64(guest.label("skbuff_head_cache"))
    in_use = cache + guest.constant("CACHE_IN_USE")
    wire.send(ip_frame(1, _echo(1, b"warm"), 1))
    before = guest.memory.u64(in_use)
    for sequence in range(20):
        wire.send(ip_frame(1, _echo(sequence, b"x" * 100), sequence))
        wire.send(ip_frame(17, struct.pack(">HHHH", 1, 9, 8, 0), sequence))
    assert guest.memory.u64(in_use) == before


RECEIVE = [
    "irq_enter_rcu",
    "__common_interrupt",
    "handle_edge_irq",
    "handle_irq_event",
    "__handle_irq_event_percpu",
    "e1000_intr",
    "napi_schedule_prep",
    "__napi_schedule",
    "irq_exit_rcu",
    "__do_softirq",
    "net_rx_action",
    "__napi_poll",
    "e1000_clean",
    "e1000_clean_rx_irq",
    "napi_gro_receive",
    "netif_receive_skb",
    "netif_receive_skb_internal",
    "__netif_receive_skb",
    "netif_receive_skb_core",
    "__netif_receive_skb_core",
    "ip_rcv",
    "ip_rcv_core",
    "ip_rcv_finish",
    "ip_local_deliver",
    "ip_local_deliver_finish",
    "ip_protocol_deliver_rcu",
]
SEND = [
    "ip_local_out",
    "ip_send_check",
    "ip_output",
    "ip_finish_output2",
    "neigh_resolve_output",
    "__dev_queue_xmit",
    "sch_direct_xmit",
    "dev_hard_start_xmit",
    "e1000_xmit_frame",
]


def _in_order(wanted: list[str], calls: list[str]) -> str | None:
    """The first of `wanted` that does not come after those before it."""
    rest = iter(calls)
    return next((name for name in wanted if name not in rest), None)


@pytest.mark.parametrize(
    ("protocol", "payload", "handlers"),
    [
        (1, _echo(1, b"x"), ["icmp_rcv", "icmp_echo", "icmp_reply", *SEND]),
        (17, struct.pack(">HHHH", 1, 9, 8, 0), ["udp_rcv", "__icmp_send", *SEND]),
        (6, struct.pack(">HHIIHHHH", 1, 9, 0, 0, 0x5002, 0, 0, 0), ["tcp_v4_rcv"]),
    ],
)
def test_the_way_of_a_packet_through_the_kernel(
    wire: Wire, guest: Guest, protocol: int, payload: bytes, handlers: list[str]
) -> None:
    calls = guest.calls_of(lambda: wire.send(ip_frame(protocol, payload, 1)))
    assert _in_order([*RECEIVE, *handlers], calls) is None


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
    assert _in_order(way, calls) is None
    for sock in (client, server, listener):
        sockets.close(sock)


# --- TCP with the peer ----------------------------------------------------------------------------


def _handshake(wire: Wire, port: int, isn: int = 1000, source: int = 5000) -> tuple[int, int]:
    """Our next sequence number and the guest's."""
    (answer,) = wire.tcp(Segment(source, port, isn, 0, SYN, b""))
    assert (answer.flags, answer.ack) == (SYN | ACK, isn + 1)
    assert wire.tcp(Segment(source, port, isn + 1, answer.seq + 1, ACK, b"")) == []
    return isn + 1, (answer.seq + 1) & 0xFFFFFFFF


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


def test_segments_out_of_order_are_put_in_order(wire: Wire, sockets: Sockets) -> None:
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


# --- between the guest's own sockets --------------------------------------------------------------


def _pair(sockets: Sockets, port: int) -> tuple[int, int, int]:
    listener = sockets.listen("127.0.0.1", port)
    client = sockets.create(socket.SOCK_STREAM)
    assert sockets.operate(client, "CONNECT", sockets.address("127.0.0.1", port), 16, 0) == 0
    server = sockets.accept(listener)
    assert server > 0
    return listener, client, server


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


def test_more_than_the_window_arrives_whole_and_in_order(sockets: Sockets) -> None:
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


def test_datagrams_between_sockets(sockets: Sockets) -> None:
    here = sockets.bound(socket.SOCK_DGRAM, "127.0.0.1", 7000)
    there = sockets.bound(socket.SOCK_DGRAM, "127.0.0.1", 7001)
    assert sockets.send(here, b"one", sockets.address("127.0.0.1", 7001)) == 3
    assert sockets.send(here, b"", sockets.address("127.0.0.1", 7001)) == 0
    assert sockets.send(here, b"three", sockets.address("127.0.0.1", 7001)) == 5
    assert sockets.receive_from(there, 100) == (b"one", ("127.0.0.1", 7000))
    assert sockets.receive(there, 100) == b""
    assert sockets.receive(there, 2) == b"th"  # the rest of it is gone
    assert sockets.receive(there, 100) == EAGAIN
    assert sockets.operate(there, "CONNECT", sockets.address("127.0.0.1", 7000), 16, 0) == 0
    assert sockets.send(there, b"back") == 4
    assert sockets.receive(here, 100) == b"back"
    sockets.close(here)
    assert sockets.send(there, b"anyone?") == 7
    assert sockets.receive(there, 100) == ECONNREFUSED  # the port unreachable came back
    sockets.close(there)


def test_a_datagram_to_the_peer_goes_over_the_wire(sockets: Sockets, wire: Wire) -> None:
    sock = sockets.bound(socket.SOCK_DGRAM, "0.0.0.0", 7002)
    wire.pending()
    assert sockets.send(sock, b"out", sockets.address("8.8.8.8", 53)) == 3
    (frame,) = wire.pending()
    assert frame[:6] == PEER_MAC
    assert frame[26:38] == socket.inet_aton(GUEST_IP) + socket.inet_aton("8.8.8.8") + struct.pack(
        ">HH", 7002, 53
    )
    assert frame[42:] == b"out"
    sockets.close(sock)
