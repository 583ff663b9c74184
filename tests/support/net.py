"""The guest's network in tests: its sockets, and the peer's end of the wire."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from emulated_kernel.network import Network, internet_checksum, ip_frame
from support.guest import Guest

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


@contextmanager
def connected_guest() -> Iterator[tuple[Guest, Network]]:
    """A booted guest of one CPU with hardware behind its adapter."""
    guest = Guest(cpus=1, boot=True)
    try:
        yield guest, Network(guest.machine)
    finally:
        guest.close()


def next_jiffy(guest: Guest) -> None:
    """Time goes on, so that the limit of ICMP messages in one tick is not reached."""
    jiffies = guest.label("jiffies_64")
    guest.memory.set_u64(jiffies, guest.memory.u64(jiffies) + 1)


def first_missing(wanted: list[str], calls: list[str]) -> str | None:
    """The first of `wanted` that does not come after those before it."""
    rest = iter(calls)
    return next((name for name in wanted if name not in rest), None)
