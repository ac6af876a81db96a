"""Engines on the oracle executor, built from settings as any other, on a virtual clock."""

from typing import Any

import msgspec
import pluggy

from enginecore.client import make_client
from enginecore.clock import RealClock, VirtualClock
from enginecore.plugin import HookSpecs
from enginecore.registry import Observers
from enginecore.settings import load_settings
from enginecore_conformance.oracle.executor import StepTrace
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.transcript import Transcript

MAX_STEPS = 20_000


class OracleEngine:
    """An engine behind its client, and what was asked and told through it.

    `oracle` holds settings of the executor, `observer` implements observer hooks, and everything else is as in
    `load_settings`. With a transport between processes time is real, and whoever makes one must shut it down.
    """

    def __init__(
        self, *, oracle: Any = None, clock: Any = None, components: Any = (), observer: Any = None, **settings: Any
    ):
        settings.setdefault("model", "oracle")
        settings.setdefault("max_model_len", 256)
        settings["executor.use"] = "oracle"
        settings["executor.oracle"] = {"record": True, **(oracle or {})}
        settings["debug.check_invariants"] = True
        in_process = settings.get("transport.use", "inproc") == "inproc"
        self.clock = clock or (VirtualClock() if in_process else RealClock())
        self.loaded = loaded = load_settings(settings, components=components, environ={})
        if observer is not None:
            manager = pluggy.PluginManager("enginecore")
            manager.add_hookspecs(HookSpecs)
            manager.register(observer)
            loaded.registry.observers = Observers(manager)
        self.client: Any = make_client(loaded, clock=self.clock)
        self.info = self.client.info
        self.model = OracleModel.of_engine(self.info)
        self.transcript = Transcript()

    def add(self, *requests):
        for request in requests:
            self.client.add_request(request)
            self.transcript.begin(request)

    def abort(self, *request_ids):
        self.client.abort_requests(request_ids)
        self.transcript.abort(request_ids)

    def get_output(self):
        """The next outputs, recorded."""
        outputs = self.client.get_output().outputs
        self.transcript.record(outputs)
        return outputs

    def run(self):
        """To the end of all requests; checks every output, and that nothing is left behind."""
        for _ in range(MAX_STEPS):
            if not self.transcript.open_ids:
                break
            self.get_output()
        assert not self.transcript.open_ids, "they have not ended"
        for _ in range(self.info.max_concurrent_batches + 1):  # steps in flight, and word of what has ended
            assert self.get_output() == []
        self.transcript.check(self.model)
        stats = self.stats
        assert stats.num_free_blocks == stats.num_blocks
        assert (stats.num_running, stats.num_waiting) == (0, 0)
        assert self.rpc("get_request_ids") == []

    async def run_async(self, client, requests):
        """More requests through an asyncio client of the same engine core, to their end; checks every output."""
        transcript = Transcript()
        for request in requests:
            client.add_request(request)
            transcript.begin(request)
        while transcript.open_ids:
            transcript.record((await client.get_output()).outputs)
        transcript.check(self.model)
        return {story.request.request_id: story.token_ids for story in transcript.stories}

    def rpc(self, method, *args):
        (result,) = self.client.call_utility("collective_rpc", method, *args)
        return result

    @property
    def stats(self):
        return self.client.call_utility("get_stats")

    @property
    def history(self):
        """All steps, as the executor saw them."""
        history: Any = msgspec.convert(self.rpc("get_history"), list[StepTrace])
        return history

    @property
    def tokens(self):
        """Output tokens by request."""
        return {story.request.request_id: story.token_ids for story in self.transcript.stories}

    @property
    def max_in_flight(self):
        return max(trace.batches_in_flight for trace in self.history)

    @property
    def num_chunks(self):
        """Rows that computed known tokens, and not the last one."""
        return sum(len(trace.plan.num_scheduled_tokens) - len(trace.output.request_ids) for trace in self.history)

    @property
    def num_cached_tokens(self):
        return sum(new.num_computed_tokens for trace in self.history for new in trace.plan.new_requests)
