"""Arms at several rates, here, in processes, and on Ray."""

import sys
from types import ModuleType

import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab import run_sweep
from tests.lab.small import experiment


def asked(**changes):
    arrivals = {"kind": "constant", "rate": 0.5}
    return experiment(workload__arrivals=arrivals, engine__max_num_seqs=1, replicates=1, **changes)


def test_cells_come_by_arm_and_rate():
    told = []
    cells = run_sweep(asked(), [0.1, 1, 4], progress=lambda *each: told.append(each))
    assert [(cell.arm, cell.factor) for cell in cells] == [
        (arm, rate) for arm in ("slow", "fast") for rate in (0.1, 1, 4)
    ]
    assert [cell.rate for cell in cells] == pytest.approx([0.05, 0.5, 2.0] * 2)
    latencies = [cell.metrics["e2e_mean"][0] for cell in cells]
    assert latencies[:3] == sorted(latencies[:3])
    assert latencies[0] < latencies[2]
    assert all(fast < slow for slow, fast in zip(latencies[:3], latencies[3:], strict=True))
    assert told == [(n, 6) for n in range(1, 7)]


def test_processes_give_the_same():
    assert run_sweep(asked(), [0.5, 1], jobs=2) == run_sweep(asked(), [0.5, 1])


@pytest.mark.parametrize(
    ("factors", "options", "message"),
    [
        ([1, 0], {}, "rates are finite multiples of the workload's own, above 0; got 0"),
        ([float("inf")], {}, "rates are finite multiples of the workload's own, above 0; got inf"),
        ([1e-320], {}, "at 1e-320 times its rate, workload 'synthetic' would never end"),
        ([1], {"jobs": 0}, "jobs = 0: it takes at least one"),
    ],
)
def test_nonsense_is_refused(factors, options, message):
    with pytest.raises(ConfigurationError, match=message):
        run_sweep(asked(), factors, **options)


def test_real_time_is_for_one_at_a_time():
    with pytest.raises(ConfigurationError, match="on a real clock runs would disturb each other"):
        run_sweep(experiment(clock="real"), [1], jobs=2)


def test_ray_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigurationError, match="Ray is not installed: pip install ray"):
        run_sweep(asked(), [1], pool="ray")


class Ray(ModuleType):
    """As much of Ray as is asked for; its tasks end last come, first."""

    def __init__(self):
        super().__init__("ray")
        self.most = 0
        self.tasks = {}

    def is_initialized(self):
        return False

    def init(self, log_to_driver):
        assert not log_to_driver

    def remote(self, function):
        class Remote:
            @staticmethod
            def remote(*task):
                self.tasks[len(self.tasks)] = (function, task)
                return len(self.tasks) - 1

        return Remote

    def wait(self, references, num_returns):
        self.most = max(self.most, len(references))
        return [max(references)], []

    def get(self, reference):
        function, task = self.tasks[reference]
        return function(*task)


def test_ray_runs_so_many_at_once_and_order_is_kept(monkeypatch):
    ray = Ray()
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert run_sweep(asked(), [0.5, 1], jobs=2, pool="ray") == run_sweep(asked(), [0.5, 1])
    assert ray.most == 2
