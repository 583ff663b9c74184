"""The hardware side of the guest's network adapter, and a peer on the other end of the wire.

kernel/include/e1000.inc says how the rings work. The peer is the gateway 10.0.2.2 of the guest
10.0.2.15: it sends echo requests and datagrams, and keeps what the guest answers.
"""

from __future__ import annotations

import struct
from collections import deque

from emulated_kernel.machine import Machine, Vcpu

GUEST_MAC = bytes.fromhex("525400123456")
PEER_MAC = bytes.fromhex("52550a000202")
GUEST_IP, PEER_IP = bytes([10, 0, 2, 15]), bytes([10, 0, 2, 2])
_ETH_P_IP, _IPPROTO_ICMP, _IPPROTO_UDP = 0x0800, 1, 17
_ICMP_ECHO = 8
_KEPT = 64


def internet_checksum(data: bytes) -> int:
    """The ones' complement sum of RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_frame(protocol: int, payload: bytes, identification: int) -> bytes:
    """An Ethernet frame from the peer to the guest with an IPv4 packet in it."""
    header = bytearray(
        struct.pack(
            ">BBHHHBBH4s4s",
            0x45,
            0,
            20 + len(payload),
            identification & 0xFFFF,
            0x4000,
            64,
            protocol,
            0,
            PEER_IP,
            GUEST_IP,
        )
    )
    header[10:12] = internet_checksum(bytes(header)).to_bytes(2, "big")
    return GUEST_MAC + PEER_MAC + struct.pack(">H", _ETH_P_IP) + bytes(header) + payload


def echo_request(sequence: int, data: bytes = b"ftracefs") -> bytes:
    """The frame of a ping."""
    message = bytearray(struct.pack(">BBHHH", _ICMP_ECHO, 0, 0, 1, sequence & 0xFFFF) + data)
    message[2:4] = internet_checksum(bytes(message)).to_bytes(2, "big")
    return ip_frame(_IPPROTO_ICMP, bytes(message), sequence)


def datagram(sequence: int, port: int = 9, data: bytes = b"discard me") -> bytes:
    """The frame of a UDP datagram without a checksum, to a port where nobody listens."""
    message = struct.pack(">HHHH", 40000, port, 8 + len(data), 0) + data
    return ip_frame(_IPPROTO_UDP, message, sequence)


class Network:
    """The adapter's hardware and the peer. All methods are for the machine thread."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._offsets = machine.image.constants
        self._adapter = machine.image.labels["e1000_adapter"]
        self._rx_ring = machine.image.labels["e1000_rx_ring"]
        self._tx_ring = machine.image.labels["e1000_tx_ring"]
        self._sequence = 0
        self.received = 0
        self.dropped = 0
        self.sent: deque[bytes] = deque(maxlen=_KEPT)  # the last frames of the guest

    def _descriptor(self, ring: int, index: int) -> int:
        return ring + index * self._offsets["E1000_DESC_SIZE"]

    def receive(self, frame: bytes, vcpu: Vcpu) -> bool:
        """A frame arrives at the adapter, which interrupts `vcpu`; False when there was no room."""
        offsets, memory = self._offsets, self._memory
        head_at = self._adapter + offsets["E1000_RX_HEAD"]
        head = memory.u32(head_at)
        descriptor = self._descriptor(self._rx_ring, head)
        status_at = descriptor + offsets["E1000_DESC_STATUS"]
        if memory.u8(status_at) & offsets["E1000_RXD_STAT_DD"]:
            self.dropped += 1
            return False
        memory.write(memory.u64(descriptor + offsets["E1000_DESC_BUFFER"]), frame)
        length_at = descriptor + offsets["E1000_DESC_LENGTH"]
        memory.write(length_at, len(frame).to_bytes(2, "little"))
        memory.set_u8(status_at, offsets["E1000_RXD_STAT_DD"])
        memory.set_u32(head_at, (head + 1) % offsets["E1000_RING_SIZE"])
        vcpu.set_word("HOST_ARG", offsets["E1000_IRQ"])
        self._machine.interrupt(vcpu, "asm_common_interrupt")
        self.received += 1
        self._transmit()
        return True

    def _transmit(self) -> None:
        """Take the frames that the driver has put into the ring of frames to be sent."""
        offsets, memory = self._offsets, self._memory
        head_at = self._adapter + offsets["E1000_TX_HEAD"]
        head = memory.u32(head_at)
        tail = memory.u32(self._adapter + offsets["E1000_TX_TAIL"])
        while head != tail:
            descriptor = self._descriptor(self._tx_ring, head)
            raw = memory.read(descriptor + offsets["E1000_DESC_LENGTH"], 2)
            address = memory.u64(descriptor + offsets["E1000_DESC_BUFFER"])
            self.sent.append(memory.read(address, int.from_bytes(raw, "little")))
            status_at = descriptor + offsets["E1000_DESC_STATUS"]
            memory.set_u8(status_at, memory.u8(status_at) | offsets["E1000_TXD_STAT_DD"])
            head = (head + 1) % offsets["E1000_RING_SIZE"]
        memory.set_u32(head_at, head)

    def traffic(self) -> None:
        """One frame from the peer: pings, and now and then a datagram. For Workload."""
        vcpu = self._machine.cpus[0]
        if not vcpu.may_be_interrupted:
            return
        self._sequence += 1
        make = datagram if self._sequence % 4 == 0 else echo_request
        self.receive(make(self._sequence), vcpu)
