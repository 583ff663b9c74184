"""The ring buffer: its pages in guest memory, read from outside (kernel/trace/ring_buffer.c)."""
