"""The benchmark of the output makes a buffer of its own: it must be one."""

from __future__ import annotations

from bench import output


def test_every_record_of_its_buffer_is_read_once() -> None:
    pipe, context, lines = output._full_pipe(), output._context(), 0
    while text := pipe.read(1 << 17, context):
        assert isinstance(text, bytes)
        lines += text.count(b"\n")
    assert lines == output.PAGES * output.RECORDS
