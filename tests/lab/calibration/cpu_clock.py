"""Real work, measured where others work too."""

import time

from enginecore.clock import RealClock


class CpuClock(RealClock):
    """Passes with this process's use of the CPU, and jumps over waits, in which there is none.

    For engines that run on one thread: then it goes as a real clock would on a machine with nobody else.
    """

    def __init__(self):
        super().__init__()
        self._waited = 0.0

    def now(self):
        return time.process_time() + self._waited

    def _pass(self, until, future):
        assert until is not None, "nobody else could end this wait"
        self._waited += max(until - self.now(), 0.0)
