"""The engine core in a process of its own: busy loop, IO threads, signals."""

from enginecore.loop.engine_core_proc import EngineCoreProc
from enginecore.loop.io_threads import InputThread, OutputThread

__all__ = ["EngineCoreProc", "InputThread", "OutputThread"]
