"""The processes that share the runs of an experiment: what becomes of them, and what is said, when one ends early."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore_lab.pool import run_tasks

DEADLINE = 60.0

PARENT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from enginecore_lab.pool import run_tasks
from tests.lab.test_pool import never_ends
run_tasks(never_ends, [(sys.argv[1], n) for n in range(2)], jobs=2)
"""


def twice(number):
    return 2 * number


def never_ends(folder, name):
    (Path(folder) / str(name)).write_text(str(os.getpid()))
    time.sleep(DEADLINE * 10)


def fails_when_the_other_runs(folder, name):
    if name:
        never_ends(folder, name)
    eventually(lambda: (Path(folder) / "1").exists())
    raise ConfigurationError("this arm cannot run")


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def eventually(holds):
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def worker_pids(folder):
    eventually(lambda: all((folder / name).exists() and (folder / name).read_text() for name in "01"))
    return [int((folder / name).read_text()) for name in "01"]


def semaphores_of(pid):
    """Their files, by inode: a map has the name under which the C library made one."""
    inodes = {int(line.split()[4]) for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/shm/sem" in line}
    return [Path(entry.path) for entry in os.scandir("/dev/shm") if entry.inode() in inodes]


def test_results_come_in_the_order_of_the_tasks():
    assert run_tasks(twice, [(n,) for n in range(5)], jobs=2) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=lambda how: how.name)
@pytest.mark.parametrize("whom", ["parent", "group"])
def test_no_process_outlives_its_parent(tmp_path, how, whom):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    parent = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    semaphores: list[Path] = []
    try:
        pids = worker_pids(tmp_path)
        semaphores += semaphores_of(parent.pid)
        if whom == "parent":
            parent.send_signal(how)
        else:
            os.killpg(parent.pid, how)
        parent.wait(DEADLINE)
        eventually(lambda: not any(map(is_there, pids)))
    finally:
        try:
            os.killpg(parent.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        parent.wait(DEADLINE)
        for semaphore in semaphores:  # what would have removed them is killed along with the group
            semaphore.unlink(missing_ok=True)


def test_a_task_that_fails_waits_for_no_other(tmp_path):
    with pytest.raises(ConfigurationError, match="this arm cannot run"):
        run_tasks(fails_when_the_other_runs, [(tmp_path, 0), (tmp_path, 1)], jobs=2)
    assert not is_there(int((tmp_path / "1").read_text()))


def test_a_process_that_is_killed_is_named():
    with pytest.raises(EngineCoreError, match="one of the 2 processes that share the runs was killed"):
        run_tasks(kills_itself, [(), ()], jobs=2)
