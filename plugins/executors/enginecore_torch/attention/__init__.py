"""Attention over a paged KV cache: the interface and the backends of this package."""
