"""Inventory of what a process holds: file descriptors, threads, child processes."""

import os
import threading

import psutil

from enginecore_conformance.checks import Violation
from enginecore_conformance.transports.background import HELPER, Background


class Inventory:
    """File descriptors, threads and child processes of this process."""

    def __init__(self) -> None:
        self.fds = _file_descriptors()
        self.threads = set(threading.enumerate())
        self.children = {child.pid for child in psutil.Process().children(recursive=True)}

    def more_than(self, before: "Inventory") -> list[str]:
        """Resources that are here and were not before, in words."""
        found = [f"file descriptor {fd} -> {target}" for fd, target in sorted(self.fds - before.fds)]
        threads = [thread.name for thread in self.threads - before.threads]
        found += [f"thread {name}" for name in threads if name != HELPER]
        found += [f"process {pid}" for pid in sorted(self.children - before.children)]
        return found


def expect_nothing_more(bench: Background, before: Inventory) -> None:
    """Within patience, this process holds nothing that it did not hold before."""
    bench.until(lambda: not Inventory().more_than(before))
    if left := Inventory().more_than(before):
        raise Violation(f"left behind: {', '.join(left)}", "nothing is left")


def _file_descriptors() -> set[tuple[int, str]]:
    """The open file descriptors and what they are; none where the system does not tell."""
    found = set()
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue  # that of the listing itself
    return found
