"""Records as text: what `trace` and `trace_pipe` show (kernel/trace/trace_output.c)."""
