"""Trace events: what they are made of, how they are printed, and who records them."""
