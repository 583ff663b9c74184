"""A tracefs you can mount anywhere, driving ftrace in an emulated x86-64 kernel."""

__version__ = "0.1.0"
