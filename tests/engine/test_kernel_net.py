"""The guest's network: frames in at the adapter, answers out, datagrams."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from support.guest import Guest
from support.net import (
    EAGAIN,
    ECONNREFUSED,
    GUEST_IP,
    PEER_IP,
    Sockets,
    Wire,
    connected_guest,
    first_missing,
    next_jiffy,
)

from emulated_kernel.network import PEER_MAC, Network, internet_checksum, ip_frame


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
        next_jiffy(guest)
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
    assert first_missing([*RECEIVE, *handlers], calls) is None


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
