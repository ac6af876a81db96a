"""From settings and registry to a running engine core."""

from enginecore.assembly.builder import build_engine_core

__all__ = ["build_engine_core"]
