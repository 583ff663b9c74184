"""Trace arrays: what belongs to one set of tracing files (kernel/trace/trace.c)."""
