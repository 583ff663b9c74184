"""Socket buffers by themselves, the queue of a device, and the odd ends of the network."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.guest import Guest

GFP_KERNEL = 0xCC0


class Buffers:
    """sk_buffs of a guest."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def make(self, data: bytes, headroom: int = 32, tailroom: int = 32) -> int:
        guest = self.guest
        size = headroom + len(data) + tailroom
        skb = guest.call("__alloc_skb", size, GFP_KERNEL, 0, -1)
        self._move(skb, headroom)
        where = guest.call("skb_put", skb, len(data))
        guest.memory.write(where, data)
        return skb

    def _move(self, skb: int, bytes_: int) -> None:
        data, tail = skb + self.at("DATA"), skb + self.at("TAIL")
        self.guest.memory.set_u64(data, self.guest.memory.u64(data) + bytes_)
        self.guest.memory.set_u32(tail, self.guest.memory.u32(tail) + bytes_)

    def at(self, field: str) -> int:
        return self.guest.constant(f"SKB_{field}")

    def length(self, skb: int) -> int:
        return self.guest.memory.u32(skb + self.at("LEN"))

    def data(self, skb: int) -> bytes:
        where = self.guest.memory.u64(skb + self.at("DATA"))
        data = self.guest.memory.read(where, self.length(skb))
        head = self.guest.memory.u64(skb + self.at("HEAD"))
        assert where + len(data) == head + self.guest.memory.u32(skb + self.at("TAIL"))
        return data

    def free(self, *skbs: int) -> None:
        for skb in skbs:
            self.guest.call("consume_skb", skb)

    def in_use(self) -> int:
        cache = self.guest.memory.u64(self.guest.label("skbuff_head_cache"))
        return self.guest.memory.u64(cache + self.guest.constant("CACHE_IN_USE"))

    def queue(self, queue: int) -> list[int]:
        found, node = [], self.guest.memory.u64(queue)
        while node not in {0, queue}:
            found.append(node)
            node = self.guest.memory.u64(node)
        assert self.guest.memory.u32(queue + self.guest.constant("SKB_LIST_QLEN")) == len(found)
        return found


@pytest.fixture(scope="module")
def shared() -> Iterator[Buffers]:
    guest = Guest(cpus=1, boot=True)
    try:
        yield Buffers(guest)
    finally:
        guest.close()


@pytest.fixture
def buffers(shared: Buffers) -> Iterator[Buffers]:
    shared.guest.reset()
    before = shared.in_use()
    yield shared
    assert shared.in_use() == before, "an sk_buff was lost"


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "push", "pull", "trim", "expand", "copy", "clone"]),
        st.integers(0, 40),
    ),
    max_size=15,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(start=st.binary(max_size=60), operations=OPERATIONS)
def test_the_data_area_against_a_model(
    shared: Buffers, start: bytes, operations: list[tuple[str, int]]
) -> None:
    guest, memory = shared.guest, shared.guest.memory
    guest.reset()
    before = shared.in_use()
    skb = shared.make(start, headroom=64, tailroom=64)
    model, head, tail, others = bytearray(start), 64, memory.u32(skb + shared.at("END")), []
    tail -= 64 + len(start)
    for number, (operation, amount) in enumerate(operations):
        fresh = bytes([number + 1]) * amount
        if operation == "put" and amount <= tail:
            memory.write(guest.call("skb_put", skb, amount), fresh)
            model += fresh
            tail -= amount
        elif operation == "push" and amount <= head:
            memory.write(guest.call("skb_push", skb, amount), fresh)
            model[:0] = fresh
            head -= amount
        elif operation == "pull":
            result = guest.call("skb_pull", skb, amount)
            assert bool(result) == (amount <= len(model))
            if result:
                del model[:amount]
                head += amount
        elif operation == "trim" and amount < len(model):
            tail += len(model) - amount
            guest.call("skb_trim", skb, amount)
            del model[amount:]
        elif operation == "expand":
            assert guest.call_int("pskb_expand_head", skb, amount, 8, GFP_KERNEL) == 0
            head += amount
            tail += 8
        elif operation == "copy":
            others.append(skb)
            skb = guest.call("skb_copy", skb, GFP_KERNEL)
        elif operation == "clone":
            clone = guest.call("skb_clone", skb, GFP_KERNEL)
            assert shared.data(clone) == bytes(model)
            others.append(clone)
        assert shared.data(skb) == bytes(model)
        total = head + len(model) + tail
        assert memory.u32(skb + shared.at("END")) >= total
        offset, room = amount // 2, guest.room(64)
        if offset <= len(model):
            count = len(model) - offset
            assert guest.call_int("skb_copy_bits", skb, offset, room, count) == 0 or count > 64
    assert guest.call_int("skb_copy_bits", skb, 0, guest.room(1), len(model) + 1) == -14
    shared.free(skb, *others)
    assert shared.in_use() == before


def test_a_clone_keeps_the_bytes_alive(buffers: Buffers) -> None:
    guest = buffers.guest
    skb = buffers.make(b"shared bytes")
    clone = guest.call("skb_clone", skb, GFP_KERNEL)
    buffers.free(skb)
    assert buffers.data(clone) == b"shared bytes"
    assert guest.call_int("pskb_expand_head", clone, 8, 0, GFP_KERNEL) == 0
    assert buffers.data(clone) == b"shared bytes"
    buffers.free(clone)


def test_a_buffer_from_elsewhere(buffers: Buffers) -> None:
    guest = buffers.guest
    memory = guest.call("__kmalloc", 512, GFP_KERNEL)
    skb = guest.call("build_skb", memory, 512)
    guest.memory.write(guest.call("skb_put", skb, 5), b"built")
    assert buffers.data(skb) == b"built"
    guest.call("napi_consume_skb", skb, 64)
    assert guest.call("__kmalloc", 512, GFP_KERNEL) == memory
    guest.call("kfree", memory)


def test_queues(buffers: Buffers) -> None:
    guest = buffers.guest
    queue = guest.room(guest.constant("SKB_LIST_SIZE"))
    a, b, c, d = (buffers.make(name) for name in (b"a", b"b", b"c", b"d"))
    assert guest.call("skb_dequeue", queue) == 0
    guest.call("skb_queue_tail", queue, a)
    guest.call("skb_queue_tail", queue, b)
    guest.call("skb_queue_head", queue, c)
    guest.call("skb_queue_tail", queue, d)
    assert buffers.queue(queue) == [c, a, b, d]
    guest.call("skb_unlink", a, queue)
    assert guest.call("skb_dequeue", queue) == c
    assert buffers.queue(queue) == [b, d]
    guest.call("skb_queue_purge", queue)
    assert buffers.queue(queue) == []
    chain = [buffers.make(b"x") for _ in range(3)]
    for here, after in zip(chain, [*chain[1:], 0], strict=True):
        guest.memory.set_u64(here, after)
    guest.call("kfree_skb_list_reason", chain[0], 2)
    buffers.free(a, c)


def test_a_busy_device_queues_its_packets(buffers: Buffers) -> None:
    guest = buffers.guest
    device = guest.label("e1000_netdev")
    assert guest.call("__dev_get_by_name", 0, guest.text(b"eth0")) == device
    index = guest.memory.u32(device + guest.constant("DEV_IFINDEX"))
    assert guest.call("dev_get_by_index", 0, index) == device
    assert guest.call("__dev_get_by_name", 0, guest.text(b"eth7")) == 0
    queue = guest.label("e1000_qdisc")
    running = queue + guest.constant("QDISC_RUNNING")
    tail = guest.label("e1000_adapter") + guest.constant("E1000_TX_TAIL")
    before = guest.memory.u32(tail)
    guest.memory.set_u32(running, 1)  # as if another CPU were at it
    for number in range(3):
        skb = buffers.make(bytes([number]) * 60)
        guest.memory.set_u64(skb + buffers.at("DEV"), device)
        assert guest.call_int("__dev_queue_xmit", skb, 0) == 0
    assert len(buffers.queue(queue)) == 3
    assert guest.memory.u32(tail) == before
    guest.memory.set_u32(running, 0)
    guest.call("__qdisc_run", queue)
    assert buffers.queue(queue) == []
    sent = [(before + number) % guest.constant("E1000_RING_SIZE") for number in range(3)]
    ring = guest.label("e1000_tx_ring")
    frames = [guest.memory.read(guest.memory.u64(ring + 16 * slot), 60) for slot in sent]
    assert frames == [bytes([number]) * 60 for number in range(3)]


def test_a_frame_too_big_for_the_device_is_dropped(buffers: Buffers) -> None:
    guest = buffers.guest
    device = guest.label("e1000_netdev")
    dropped = device + guest.constant("DEV_TX_DROPPED")
    before = guest.memory.u64(dropped)
    skb = buffers.make(bytes(1600))
    guest.memory.set_u64(skb + buffers.at("DEV"), device)
    guest.call("__dev_queue_xmit", skb, 0)
    assert guest.memory.u64(dropped) == before + 1


def test_a_packet_handed_in_without_napi(buffers: Buffers) -> None:
    guest = buffers.guest
    device = guest.label("loopback_dev")
    packet = bytearray(
        struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20, 1, 0, 9, 253, 0, *2 * [b"\x7f\0\0\1"])
    )
    total = sum(struct.unpack(">10H", packet))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    packet[10:12] = struct.pack(">H", ~total & 0xFFFF)
    skb = buffers.make(bytes(packet))
    guest.memory.set_u64(skb + buffers.at("DEV"), device)
    guest.memory.write(skb + buffers.at("PROTOCOL"), b"\x08\x00")
    calls = guest.calls_of(lambda: guest.call("netif_rx", skb))
    for name in ("enqueue_to_backlog", "process_backlog", "ip_rcv", "ip_protocol_deliver_rcu"):
        assert name in calls
    assert "__icmp_send" in calls  # protocol 253 is nobody's


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.2.15", "10.0.2.99", "8.8.8.8", "127.9.9.9"])
def test_routes(buffers: Buffers, address: str) -> None:
    guest = buffers.guest
    flow = guest.place(socket.inet_aton(address) + bytes(20))
    route = guest.call("ip_route_output_flow", 0, flow, 0)
    names = {guest.label(f"{name}_dst"): name for name in ("local", "link", "gateway")}
    expected = {"127.": "local", "10.0.2.15": "local", "10.0.2.": "link", "": "gateway"}
    assert names[route] == next(v for k, v in expected.items() if address.startswith(k))
    source = socket.inet_ntoa(guest.memory.read(flow + guest.constant("FL4_SADDR"), 4))
    assert source == (address if names[route] == "local" else "10.0.2.15")
