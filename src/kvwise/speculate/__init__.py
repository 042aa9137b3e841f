"""Speculative decoding: whether two models go together, what it costs, and whether it pays."""
