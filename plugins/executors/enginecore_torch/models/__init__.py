"""Architectures, and the layer parts that they share."""
