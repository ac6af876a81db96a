"""The executor `multiproc` and its worker processes."""
