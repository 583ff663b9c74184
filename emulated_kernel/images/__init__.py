"""Kernels: the built-in one, and others that give a KernelImage."""
