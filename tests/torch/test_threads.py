"""How many threads a model gets."""

import logging

import psutil
import pytest

from enginecore_torch.threads import choose_num_threads


@pytest.fixture
def machine(monkeypatch):
    """Four CPUs, of which some are busy."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 4)

    def busy(*percents):
        monkeypatch.setattr(psutil, "cpu_percent", lambda interval, percpu: list(percents))

    return busy


@pytest.mark.parametrize(
    ("percents", "threads"), [((0, 3, 0, 9), 4), ((100, 3, 0, 9), 3), ((100, 90, 80, 9), 1), ((100, 90, 80, 90), 1)]
)
def test_one_thread_for_each_cpu_that_nobody_else_uses(machine, caplog, percents, threads):
    machine(*percents)
    with caplog.at_level(logging.WARNING):
        assert choose_num_threads(None, executor="multiproc") == threads
    assert ("executor.multiproc.num_threads" in caplog.text) == (threads < 4)
    assert ("CPUs are busy" in caplog.text) == (threads < 4)


def test_cpus_that_the_process_may_not_use_do_not_count(machine, monkeypatch):
    machine(100, 100, 0, 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {2, 3}, raising=False)
    assert choose_num_threads(None, executor="single") == 2


@pytest.mark.parametrize(("processes", "threads"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_processes_share_the_cpus(machine, processes, threads):
    machine(0, 0, 0, 0)
    assert choose_num_threads(None, executor="multiproc", num_processes=processes) == threads


def test_what_was_asked_for_is_done(machine):
    machine(100, 100, 100, 100)
    assert choose_num_threads(3, executor="single", num_processes=2) == 3


def test_a_number_in_the_environment_is_left_alone(machine, monkeypatch):
    machine(0, 0, 0, 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert choose_num_threads(None, executor="single") is None
