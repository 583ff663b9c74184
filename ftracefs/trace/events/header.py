"""How a page of the buffer and a record in it begin: the files header_page and header_event.

Models ring_buffer_print_page_header and ring_buffer_print_entry_header of ring_buffer.c.
"""

from __future__ import annotations

from ftracefs.ring_buffer.layout import (
    BUF_PAGE_HDR_SIZE,
    BUF_PAGE_SIZE,
    RINGBUF_TYPE_DATA_TYPE_LEN_MAX,
    RINGBUF_TYPE_PADDING,
    RINGBUF_TYPE_TIME_EXTEND,
    RINGBUF_TYPE_TIME_STAMP,
)

_FIELDS = (
    ("u64 timestamp", 0, 8, 0),
    ("local_t commit", 8, 8, 1),
    ("int overwrite", 8, 1, 1),
    ("char data", BUF_PAGE_HDR_SIZE, BUF_PAGE_SIZE, 1),
)


def header_page() -> str:
    """What stands at the beginning of a page."""
    return "".join(
        f"\tfield: {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n"
        for name, offset, size, signed in _FIELDS
    )


def header_event() -> str:
    """What stands in front of a record."""
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
