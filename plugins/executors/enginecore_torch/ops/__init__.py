"""The operations between matrix products."""
