"""How records lie in a page of the ring buffer (include/linux/ring_buffer.h, ring_buffer.c).

    page    u64 time stamp | u64 commit: bytes of data | 4080 bytes of data
    event   u32 header: type_len in the low 5 bits, time_delta in the high 27 | payload

type_len 1..28 is a payload of that many words. 0 puts the length of the payload plus 4 into the
word behind the header. The rest are not records: padding up to the end of the page, a time extend
whose next word holds the high bits of the delta, and an absolute time stamp.

In the ring itself the upper half of the commit word says how many of the bytes are such padding.
"""

from __future__ import annotations

PAGE_SIZE = 4096
BUF_PAGE_HDR_SIZE = 16
BUF_PAGE_SIZE = PAGE_SIZE - BUF_PAGE_HDR_SIZE
_U64 = (1 << 64) - 1
RB_ALIGNMENT = 4
RB_EVNT_HDR_SIZE = 4
RB_LEN_TIME_EXTEND = 8
RB_EVNT_MIN_SIZE = 8

RINGBUF_TYPE_DATA_TYPE_LEN_MAX = 28
RINGBUF_TYPE_PADDING = 29
RINGBUF_TYPE_TIME_EXTEND = 30
RINGBUF_TYPE_TIME_STAMP = 31
RB_MAX_SMALL_DATA = RB_ALIGNMENT * RINGBUF_TYPE_DATA_TYPE_LEN_MAX
BUF_MAX_DATA_SIZE = BUF_PAGE_SIZE - 2 * RB_ALIGNMENT

TS_SHIFT = 27

# What a reader finds in the commit word of a page handed out whole.
RB_MISSED_EVENTS = 1 << 31
RB_MISSED_STORED = 1 << 30

MIN_PAGES = 2  # beside the reader's


def nr_pages_of(size: int) -> int:
    """How many pages a buffer of `size` bytes gets (ring_buffer_resize)."""
    rounded_up = (size + BUF_PAGE_SIZE - 1) & _U64  # as unsigned long counts: a huge one is small
    return max(MIN_PAGES, rounded_up // BUF_PAGE_SIZE)


def rb_calculate_event_length(length: int) -> int:
    """The bytes that a record with `length` bytes of payload takes in a page."""
    length = max(1, length)
    if length > RB_MAX_SMALL_DATA:
        length += RB_ALIGNMENT
    return -(-(length + RB_EVNT_HDR_SIZE) // RB_ALIGNMENT) * RB_ALIGNMENT


def ring_buffer_print_page_header() -> str:
    """The file events/header_page."""
    return (
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
        "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
        "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
        f"\tfield: char data;\toffset:{BUF_PAGE_HDR_SIZE};\tsize:{BUF_PAGE_SIZE};\tsigned:1;\n"
    )


def ring_buffer_print_entry_header() -> str:
    """The file events/header_event."""
    return (
        "# compressed entry header\n"
        "\ttype_len    :    5 bits\n"
        "\ttime_delta  :   27 bits\n"
        "\tarray       :   32 bits\n"
        "\n"
        f"\tpadding     : type == {RINGBUF_TYPE_PADDING}\n"
        f"\ttime_extend : type == {RINGBUF_TYPE_TIME_EXTEND}\n"
        f"\ttime_stamp : type == {RINGBUF_TYPE_TIME_STAMP}\n"
        f"\tdata max type_len  == {RINGBUF_TYPE_DATA_TYPE_LEN_MAX}\n"
    )
