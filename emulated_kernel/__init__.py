"""An x86-64 machine under Unicorn and the kernels that run on it. Knows nothing of tracefs."""
