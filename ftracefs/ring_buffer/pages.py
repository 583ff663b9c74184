"""Pages of the ring buffer decoded into arrays: where each record is, how long, and when.

Where a record ends is known only from its header, so the headers of a page form a chain. Pages of
function records, which are nearly all there are, have their headers at equal distances; that is
checked for all pages at once. The chain of any other page is unrolled by doubling: given where n
steps lead from every word of the page, the first n headers give the next n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ftracefs.ring_buffer.layout import (
    BUF_PAGE_HDR_SIZE,
    BUF_PAGE_SIZE,
    PAGE_SIZE,
    RINGBUF_TYPE_DATA_TYPE_LEN_MAX,
    RINGBUF_TYPE_PADDING,
    RINGBUF_TYPE_TIME_EXTEND,
    RINGBUF_TYPE_TIME_STAMP,
    TS_SHIFT,
)

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

PAGE_WORDS = PAGE_SIZE // 4
HDR_WORDS = BUF_PAGE_HDR_SIZE // 4
DATA_WORDS = BUF_PAGE_SIZE // 4
_TYPE_MASK = np.uint32(31)
_PAGES_AT_A_TIME = 64  # the tables of the doubling stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Pages:
    """Copies of pages, in the order of their records, those of one CPU together.

    `words` is (pages, 1024) u32. `commit` is the data of each page in bytes, `read` how much of it
    has been consumed already, `cpu` whose it is.
    """

    words: U32
    commit: I64
    read: I64
    cpu: I64


@dataclass(frozen=True, slots=True)
class Records:
    """The records of `Pages` in page order: an array each, one element a record.

    `at` is the index of the first word of the payload in the pages' words laid end to end, `length`
    the payload's bytes as far as the header tells (rounded up to words), `page` the number of the
    page and `end` the number of data bytes of that page up to and with this record.
    """

    at: I64
    length: I64
    ts: U64
    page: I64
    end: I64


def decode(pages: Pages) -> Records:
    """Find every record of `pages` that has not been consumed."""
    count = len(pages.words)
    if count == 0:
        empty = np.zeros(0, dtype=np.int64)
        return Records(empty, empty, np.zeros(0, dtype=np.uint64), empty, empty)
    step, is_uniform = _uniform_pages(pages)
    chains = [_even_chain(pages.commit, step, np.flatnonzero(is_uniform))]
    mixed = np.flatnonzero(~is_uniform)
    for first in range(0, len(mixed), _PAGES_AT_A_TIME):
        numbers = mixed[first : first + _PAGES_AT_A_TIME]
        chains.append(_unroll(pages.words[numbers, HDR_WORDS:], pages.commit[numbers], numbers))
    page = np.concatenate([chain[0] for chain in chains])
    pos = np.concatenate([chain[1] for chain in chains])
    if len(mixed):
        order = np.argsort(page, kind="stable")
        page, pos = page[order], pos[order]
    return _records(pages, page, pos, plain=not len(mixed))


def _uniform_pages(pages: Pages) -> tuple[int, npt.NDArray[np.bool_]]:
    """The commonest distance of two headers, in words, and the pages that have no other."""
    data = pages.words[:, HDR_WORDS:]
    step = int(np.bincount(data[:, 0] & _TYPE_MASK).argmax()) + 1
    if not 2 <= step <= RINGBUF_TYPE_DATA_TYPE_LEN_MAX + 1:
        return 1, np.zeros(len(data), dtype=np.bool_)
    slots = DATA_WORDS // step
    is_header = pages.commit[:, None] > np.arange(slots) * (4 * step)
    right = (data[:, : slots * step : step] & _TYPE_MASK) == step - 1
    uniform = (right | ~is_header).all(axis=1)
    if slots * step < DATA_WORDS:
        # What is too small for a record holds padding when the page is full.
        padding = (data[:, slots * step] & _TYPE_MASK) == RINGBUF_TYPE_PADDING
        uniform &= padding | (pages.commit <= slots * step * 4)
    return step, uniform


def _even_chain(commit: I64, step: int, numbers: I64) -> tuple[I64, I64]:
    """Page and data word of each header of the pages `numbers`, which are uniform."""
    count = np.minimum(commit[numbers] // (4 * step), DATA_WORDS // step)
    page = np.repeat(numbers, count)
    before = np.cumsum(count) - count
    return page, (np.arange(len(page)) - np.repeat(before, count)) * step


def _unroll(data: U32, commit: I64, numbers: I64) -> tuple[I64, I64]:
    """Page and data word of each header of the pages `numbers`, whatever they hold."""
    count = len(data)
    kind = (data & _TYPE_MASK).astype(np.int32)
    following = np.empty((count, DATA_WORDS), dtype=np.int32)
    following[:, :-1] = data[:, 1:]
    following[:, -1] = 0
    length = kind + 1
    np.copyto(length, 1 + ((following + 3) >> 2), where=kind == 0)
    np.copyto(length, DATA_WORDS, where=kind == RINGBUF_TYPE_PADDING)
    np.copyto(length, 2, where=kind >= RINGBUF_TYPE_TIME_EXTEND)
    end = (commit // 4).astype(np.int32)
    jump = np.full((count, DATA_WORDS + 1), DATA_WORDS, dtype=np.int32)
    target = np.arange(DATA_WORDS, dtype=np.int32)[None, :] + np.clip(length, 1, DATA_WORDS)
    np.copyto(jump[:, :-1], target, where=target < end[:, None])
    chain = np.where(end > 0, 0, DATA_WORDS).astype(np.int32)[:, None]
    while True:
        more = np.take_along_axis(jump, chain, axis=1)
        if (more[:, 0] == DATA_WORDS).all():
            break
        chain = np.concatenate([chain, more], axis=1)
        jump = np.take_along_axis(jump, jump, axis=1)
    page, step = np.nonzero(chain < DATA_WORDS)
    return numbers[page], chain[page, step].astype(np.int64)


def _records(pages: Pages, page: I64, pos: I64, *, plain: bool) -> Records:
    """Payloads and times of the headers found; `plain` if all are short records."""
    flat = pages.words.reshape(-1)
    head_at = page * PAGE_WORDS + HDR_WORDS + pos
    head = flat[head_at]
    kind = (head & _TYPE_MASK).astype(np.int64)
    delta = (head >> np.uint32(5)).astype(np.uint64)
    stamp = pages.words[:, :2].copy().view(np.uint64)[:, 0]
    if plain:
        length = kind * 4
        at = head_at + 1
        ts = _sum_deltas(delta, page, stamp)
        end = pos * 4 + 4 + length
        wanted = end > pages.read[page]
    else:
        following = flat[np.minimum(head_at + 1, len(flat) - 1)].astype(np.int64)
        is_extend = kind == RINGBUF_TYPE_TIME_EXTEND
        is_stamp = kind == RINGBUF_TYPE_TIME_STAMP
        high = following.astype(np.uint64) << np.uint64(TS_SHIFT)
        absolute = high + delta
        delta = np.where(is_extend, absolute, delta)
        delta[kind == RINGBUF_TYPE_PADDING] = 0
        delta[is_stamp] = 0
        ts = _sum_deltas(delta, page, stamp)
        if is_stamp.any():
            _apply_stamps(ts, page, is_stamp, absolute)
        long = kind == 0
        length = np.where(long, following - 4, kind * 4)
        at = head_at + 1 + long
        end = (at - page * PAGE_WORDS - HDR_WORDS) * 4 + ((length + 3) & ~3)
        wanted = (kind <= RINGBUF_TYPE_DATA_TYPE_LEN_MAX) & (end > pages.read[page])
    if wanted.all():
        return Records(at, length, ts, page, end)
    return Records(at[wanted], length[wanted], ts[wanted], page[wanted], end[wanted])


def _sum_deltas(delta: U64, page: I64, stamp: U64) -> U64:
    """Running time: each page starts from its own stamp."""
    total = np.cumsum(delta)
    if len(page) == 0:
        return total
    starts = np.flatnonzero(np.concatenate([[True], page[1:] != page[:-1]]))
    before = total[starts] - delta[starts]
    base = np.zeros(len(stamp), dtype=np.uint64)
    base[page[starts]] = stamp[page[starts]] - before
    return total + base[page]


def _apply_stamps(ts: U64, page: I64, is_stamp: npt.NDArray[np.bool_], absolute: U64) -> None:
    """Let the time go on from each absolute stamp to the end of its page."""
    where = np.flatnonzero(is_stamp)
    top = ts[where] & ~np.uint64((1 << 59) - 1)  # a stamp holds the low 59 bits
    correction = (absolute[where] | top) - ts[where]
    last = np.searchsorted(where, np.arange(len(ts)), "right") - 1
    valid = last >= 0
    valid[valid] = page[where[last[valid]]] == page[valid]
    ts[valid] += correction[last[valid]]
