"""Assembly: builds an engine core from settings and the components that they choose."""

from enginecore.assembly.builder import build_engine_core

__all__ = ["build_engine_core"]
