"""Engine cores on the simulated executor, and requests for them."""

from functools import partial
from random import Random

from enginecore.assembly import build_engine_core
from enginecore.clock import VirtualClock
from enginecore.messages import EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore.settings import load_settings
from enginecore_lab.recording import RecordingExecutor

FREE = dict.fromkeys(
    ("per_step", "per_request", "weights", "per_token", "per_kv_token", "per_attention_pair", "comm_per_step"), 0.0
) | {"comm_per_token": 0.0, "rho": 1.0}
"""Parameters of steps that cost nothing; a test sets those that it is about."""


def make_core(clock=None, *, simulated=None, **settings):
    arguments = {
        "model": "llama-3-8b",
        "executor": {"use": "simulated", "simulated": simulated or {}},
        "kv_cache_memory": 1.0,
    }
    loaded = load_settings({**arguments, **settings}, environ={})
    return build_engine_core(loaded, clock or VirtualClock())


def costing(**parameters):
    """Settings of the executor: steps cost these parameters and nothing else."""
    return {"parameters": {**FREE, **parameters}}


def request(name, prompt=8, tokens=4, **fields):
    """A request that gets exactly `tokens` tokens, which nobody can foresee. Its prompt is like no other's."""
    params = SamplingParams(temperature=0, max_tokens=1000, min_tokens=tokens - 1, stop_token_ids=(0,), ignore_eos=True)
    ids = Random(name).choices(range(1, 250), k=prompt)
    return EngineCoreRequest(request_id=name, prompt_token_ids=ids, params=params, **fields)


class Session:
    """A core that runs requests as they come, with everything noted.

    Attributes:
        steps: As recorded in front of the executor.
        times: When each token came, by request.
        ended: When each request ended, and why.
        added: When each request was really added, in order.
        woken: Of steps before which the engine had nothing to do: their index, and when that was over.
    """

    def __init__(self, core, clock, arrivals):
        self.core, self.clock = core, clock
        recording = core.executor = RecordingExecutor(core.executor, clock)
        self.steps = recording.steps
        self.times: dict[str, list[float]] = {}
        self.ended: dict[str, tuple[float, object]] = {}
        self.added: list[tuple[float, EngineCoreRequest]] = []
        self.woken: dict[int, float] = {}
        self.more(arrivals)

    def more(self, arrivals):
        """When all is done, go on with these."""
        for at, each in arrivals:
            self.clock.call_at(at, partial(self._add, each))
        self._run()

    def _add(self, each):
        now = self.clock.now()
        if not self.core.has_requests():
            self.woken[len(self.steps)] = now
        self.core.add_request(each)
        # others that come before the engine is up do not come later than the one that woke it
        since = self.woken.get(len(self.steps))
        self.added.append((now if since is None else since, each))

    def _run(self):
        while True:
            if self.core.has_requests():
                self._note(self.core.advance()[0])
            elif (event := self.clock.next_event()) is not None:
                self.clock.wait(deadline=event)
            else:
                return

    def _note(self, outputs):
        for output in (output for due in outputs.values() for output in due.outputs):
            self.times.setdefault(output.request_id, []).extend([self.clock.now()] * len(output.new_token_ids))
            if output.finish_reason is not None:
                self.ended[output.request_id] = self.clock.now(), output.finish_reason

    @property
    def plans(self):
        return [step.plan for step in self.steps]
