"""An engine core behind its loop and its IO threads, in one process, with front ends that a test speaks for."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import msgspec

from enginecore.clock import Clock, RealClock
from enginecore.core import EngineCore
from enginecore.interfaces import EngineCoreApi
from enginecore.loop import EngineCoreProc, InputThread, OutputThread
from enginecore.loop.queues import Queues
from enginecore.messages import (
    EngineCoreOutput,
    FinishReason,
    LoopStats,
    ModelRunnerOutput,
    SchedulerOutput,
    SchedulerStats,
)
from enginecore.plugin import Component, ExecutorContext
from enginecore.wire import (
    SCHEMA,
    Bye,
    ClientMessage,
    Dead,
    Hello,
    ServerMessage,
    StepOutputs,
    UtilityCall,
    UtilityReply,
    Welcome,
)
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.settings import OracleSettings
from tests.core.engines import make_core
from tests.loop.memory_channel import MemoryServer

TIMEOUT = 30.0

M = TypeVar("M")


class Held:
    """A forward pass that goes on until the test ends it."""

    def __init__(self, scheduled: SchedulerOutput, inner: "Future[ModelRunnerOutput | None]") -> None:
        self.scheduled = scheduled
        self.outer: Future[ModelRunnerOutput | None] = Future()
        self._inner = inner

    def end(self) -> None:
        self.outer.set_result(self._inner.result(TIMEOUT))


class Gate:
    """Through it every step must go; while it is closed, each goes on until it is ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._arrived: SimpleQueue[Held] = SimpleQueue()
        self._all: list[Held] = []

    def close(self) -> None:
        self._closed = True

    def open(self) -> None:
        """Let all steps pass from now on, those that are held too."""
        with self._lock:
            self._closed = False
        for held in self._all:
            if not held.outer.done():
                held.end()

    def next_step(self) -> Held:
        """The next step that is held; its forward pass runs."""
        return self._arrived.get(timeout=TIMEOUT)

    def pass_through(
        self, scheduled: SchedulerOutput, inner: "Future[ModelRunnerOutput | None]"
    ) -> "Future[ModelRunnerOutput | None]":
        with self._lock:
            if not self._closed:
                return inner
            held = Held(scheduled, inner)
            self._all.append(held)
        self._arrived.put(held)
        return held.outer

    def component(self) -> Component:
        def factory(settings: OracleSettings, context: ExecutorContext) -> "GatedExecutor":
            return GatedExecutor(settings, context, self)

        return Component(kind="executor", name="gated", factory=factory, settings=OracleSettings)


class GatedExecutor(OracleExecutor):
    """The oracle with a gate; it can be told to report a failure, too."""

    def __init__(self, settings: OracleSettings, context: ExecutorContext, gate: Gate) -> None:
        super().__init__(settings, context)
        self._gate = gate

    def execute_model(self, scheduled: SchedulerOutput) -> "Future[ModelRunnerOutput | None]":
        return self._gate.pass_through(scheduled, super().execute_model(scheduled))

    def collective_rpc(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        if method == "give":
            return [GIVEN[args[0]]()]
        return super().collective_rpc(method, *args, timeout=timeout)

    def report(self, error: BaseException) -> None:
        self._failure.fail(error)


GIVEN: dict[str, Callable[[], Any]] = {}
"""What `collective_rpc("give", name)` gives: tests put it in."""


class FrontEnd:
    """What a test says and hears as one peer."""

    def __init__(self, loop: "Loop", peer: bytes) -> None:
        self.peer = peer
        self._loop = loop
        self._aside: list[ServerMessage] = []
        self._calls = 0

    def say(self, *messages: ClientMessage | bytes | None) -> None:
        """Send. Bytes are sent as they are; None: it is gone."""
        self._loop.server.deliver(self.peer, *messages)

    def hear(self) -> ServerMessage:
        """The next message."""
        if self._aside:
            return self._aside.pop(0)
        try:
            return self._loop.server.sent[self.peer].get(timeout=TIMEOUT)
        except Empty:
            raise AssertionError(f"{self.peer!r} was told nothing") from None

    def hear_of(self, kind: type[M], accept: Callable[[M], bool] = lambda message: True) -> M:
        """The next message of a kind; what comes before it is kept for later."""
        passed: list[ServerMessage] = []
        while not isinstance(message := self.hear(), kind) or not accept(message):
            passed.append(message)
        self._aside = [*passed, *self._aside]
        return message

    def hello(self) -> int:
        """Say it; returns the client index."""
        self.say(Hello(SCHEMA))
        return self.hear_of(Welcome).client_index

    def call(self, name: str, *args: Any) -> UtilityReply:
        """Call a utility."""
        self._calls += 1
        call_id = self._calls
        self.say(UtilityCall(call_id, name, list(args)))
        return self.hear_of(UtilityReply, lambda reply: reply.call_id == call_id)

    def stats(self) -> SchedulerStats:
        """The scheduler's."""
        return msgspec.convert(self.call("get_stats").value, SchedulerStats)

    def outputs(self, *request_ids: str) -> dict[str, list[EngineCoreOutput]]:
        """All outputs up to the last ones of these requests, by request."""
        heard: dict[str, list[EngineCoreOutput]] = {request_id: [] for request_id in request_ids}
        while not all(heard[name] and heard[name][-1].finish_reason is not None for name in request_ids):
            for output in self.hear_of(StepOutputs).outputs.outputs:
                heard.setdefault(output.request_id, []).append(output)
        return heard

    def rest(self) -> list[ServerMessage]:
        """All that was said and not heard: for ever, once the loop has stopped."""
        messages, self._aside = self._aside, []
        queue = self._loop.server.sent[self.peer]
        while not queue.empty():
            messages.append(queue.get())
        return messages

    def rest_of_outputs(self) -> list[EngineCoreOutput]:
        """The outputs among `rest`."""
        return [
            output for message in self.rest() if isinstance(message, StepOutputs) for output in message.outputs.outputs
        ]


class Loop:
    """EngineCoreProc with its IO threads around an oracle engine core, or around another one."""

    def __init__(
        self,
        core: EngineCoreApi | None = None,
        *,
        shutdown_timeout: float = 0.0,
        owner_key: str = "",
        clock: Clock | None = None,
        queues: Queues | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock or RealClock()
        self.gate = Gate()
        self.core: Any = core or self._gated_core(settings)
        self.queues = queues or Queues()
        self.server = MemoryServer()
        self.proc = EngineCoreProc(
            self.core, self.queues, shutdown_timeout=shutdown_timeout, clock=self.clock, owner_key=owner_key
        )
        self.receiving = InputThread(self.server, self.queues, abort_at_once=self.proc.abort_at_once)
        self.sending = OutputThread(self.server, self.queues)
        self._last: Future[Dead] = Future()
        self._thread = threading.Thread(target=self._run, name="engine-core", daemon=True)
        self._stopped = False

    def _gated_core(self, settings: dict[str, Any]) -> EngineCore:
        oracle = settings.pop("oracle", {})
        return make_core(
            components=[self.gate.component(), *settings.pop("components", ())],
            executor={"use": "gated", "gated": oracle},
            clock=self.clock,
            debug={"check_invariants": True},
            **settings,
        )

    def __enter__(self) -> "Loop":
        self.receiving.start()
        self.sending.start()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._last.set_result(self.proc.run())
        except BaseException as error:
            self._last.set_exception(error)

    def front_end(self, peer: bytes = b"a") -> FrontEnd:
        """One that has said hello."""
        front = FrontEnd(self, peer)
        front.hello()
        return front

    def stranger(self, peer: bytes = b"stranger") -> FrontEnd:
        """One that has not."""
        return FrontEnd(self, peer)

    def take_in(self) -> None:
        """Wait until the input thread has done all that it does with what was said."""
        assert self.server.wait_until_taken(TIMEOUT)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is said meanwhile is taken in as a whole, between two steps."""
        conductor = self.stranger(b"conductor")
        conductor.hello()
        assert conductor.call("pause").failure is None
        yield
        self.take_in()
        assert conductor.call("resume").failure is None
        conductor.say(Bye())

    def stats(self) -> LoopStats:
        return self.queues.activity.stats

    @property
    def last(self) -> Dead:
        """The last word, once the loop has ended by itself; everything that it said has been sent."""
        last = self._last.result(TIMEOUT)
        self._stop_threads()
        return last

    def stop(self) -> Dead:
        """Stop at once, if it runs."""
        for _ in range(2):
            self.proc.request_shutdown("the test is over")
        self.gate.open()
        return self.last

    def _stop_threads(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        assert self.sending.stop(TIMEOUT)
        assert self.receiving.stop(TIMEOUT)
        if self._thread.ident:
            self._thread.join(TIMEOUT)
        self.server.close()
        self.core.shutdown()


def reasons(outputs: list[EngineCoreOutput]) -> list[FinishReason | None]:
    return [output.finish_reason for output in outputs]


def tokens(outputs: list[EngineCoreOutput]) -> list[int]:
    return [token for output in outputs for token in output.new_token_ids]
