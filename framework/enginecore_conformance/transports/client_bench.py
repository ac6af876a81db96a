"""Bench for checks of clients: engines on the oracle behind a transport, and transcripts."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from enginecore.client import make_client
from enginecore.errors import EngineCoreError
from enginecore.interfaces import EngineCoreClient
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest
from enginecore.sampling import SamplingParams
from enginecore.settings import Loaded
from enginecore_conformance.checks import Violation
from enginecore_conformance.oracle.executor import StepTrace
from enginecore_conformance.oracle.model import OracleModel
from enginecore_conformance.subject import Subject
from enginecore_conformance.transcript import Transcript
from enginecore_conformance.transports.background import Background
from enginecore_conformance.transports.telling import TELLING
from enginecore_conformance.workloads import BrickWorkload

BLOCK_SIZE = 8
MAX_EMPTY = 10_000
"""Outputs, empty ones too, that may come before an engine core without requests is idle."""


class Talk:
    """A front end's client, with a transcript of its requests and outputs.

    Attributes:
        client: The client.
        transcript: Requests and outputs so far.
        late: Outputs of requests that it had closed already, which may come.
    """

    def __init__(self, client: EngineCoreClient) -> None:
        self.client = client
        self.transcript = Transcript()
        self.late: list[EngineCoreOutput] = []

    def add_requests(self, *requests: EngineCoreRequest) -> None:
        """Send requests."""
        for request in requests:
            self.client.add_request(request)
            self.transcript.begin(request)

    def abort(self, *request_ids: str) -> None:
        """Close requests."""
        self.client.abort_requests(request_ids)
        self.transcript.abort(request_ids)

    def take_outputs(self) -> EngineCoreOutputs:
        """The next outputs, recorded."""
        outputs = self.client.get_output()
        self.record(outputs.outputs)
        return outputs

    def record(self, outputs: Sequence[EngineCoreOutput]) -> None:
        """Outputs came."""
        for output in outputs:
            known = output.request_id in self.transcript
            if known and self.transcript[output.request_id].aborted:
                self.late.append(output)
            else:
                self.transcript.record([output])

    def run(self) -> None:
        """Take outputs until all requests have ended and the client says so; each got what the
        model gives.
        """
        self.await_ends()
        self.await_idle()
        self.transcript.check(OracleModel.of_engine(self.client.info))

    def await_ends(self) -> None:
        """Take outputs until all requests have ended."""
        while self.transcript.open_ids:
            if self.take_outputs().idle and (left := self.transcript.open_ids):
                raise Violation(
                    f"the engine core is said to be idle, and requests {left} have no terminal output",
                    "every accepted request gets exactly one",
                )

    def await_idle(self) -> None:
        """Take outputs until the client says that nothing is left to come."""
        for _ in range(MAX_EMPTY):
            if self.take_outputs().idle:
                return
        raise Violation(f"get_output() returned {MAX_EMPTY} times, and never with `idle`", "`idle` once all is said")

    def expect_rest(self) -> None:
        """Nothing is left of any request, in the engine core or in its worker."""
        self.await_idle()
        stats = self.client.call_utility("get_stats")
        left = self.rpc("get_request_ids")
        if (stats.num_running, stats.num_waiting, stats.num_free_blocks, left) != (0, 0, stats.num_blocks, []):
            raise Violation(f"{stats}, and the worker knows {left}", "nothing runs, waits or holds a block")

    def rpc(self, method: str, *args: Any) -> Any:
        """Call a method of the oracle's worker."""
        return self.client.call_utility("collective_rpc", method, *args)[0]

    def take_first(self) -> EngineCoreOutput:
        """The first output of the next outputs that have any; not recorded."""
        while not (outputs := self.client.get_output().outputs):
            pass
        return outputs[0]

    @property
    def history(self) -> list[StepTrace]:
        """All steps, as the executor saw them."""
        return msgspec.convert(self.rpc("get_history"), list[StepTrace])


class ClientBench(Background):
    """Starts engines and shuts them down in the end."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.patience)
        self._subject = subject
        self._clients: list[EngineCoreClient] = []

    def load(self, *, oracle: dict[str, Any] | None = None, **settings: Any) -> Loaded:
        """Settings of an engine on the oracle; dots in names are written as two underscores."""
        return self._subject.load(
            {
                "scheduler.use": "telling",
                "executor.oracle": {"record": True, **(oracle or {})},
                "block_size": BLOCK_SIZE,
                "num_kv_blocks": 256,
                "max_model_len": 512,
                "debug.check_invariants": True,
                **{name.replace("__", "."): value for name, value in settings.items()},
            },
            [TELLING],
        )

    def start(self, **settings: Any) -> Talk:
        """An engine, and talk with it."""
        return self.talk(make_client(self.load(**settings)))

    def talk(self, client: EngineCoreClient) -> Talk:
        """Talk through a client, which is shut down in the end."""
        self._clients.append(client)
        return Talk(client)

    def close(self) -> None:
        for client in reversed(self._clients):
            with suppress(Exception):
                client.shutdown()


def requests(count: int, *, prefix: str = "r", seed: int = 1) -> list[EngineCoreRequest]:
    """Requests of all kinds."""
    workload = BrickWorkload(seed=seed, block_size=BLOCK_SIZE, max_tokens=24, salts=(None, None, "other"))
    return workload.requests(count, prefix=prefix)


def request(
    request_id: str, max_tokens: int = 12, prompt: Iterable[int] = (5, 6, 7), **fields: Any
) -> EngineCoreRequest:
    """A request that ends after so many tokens."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return EngineCoreRequest(request_id=request_id, prompt_token_ids=list(prompt), **{"params": params, **fields})


def reasons(error: BaseException | None) -> str:
    """All that an error and its causes say."""
    texts = []
    while error is not None:
        texts.append(f"{type(error).__name__}: {error}")
        error = error.__cause__
    return " <- ".join(texts)


def expect_error(kind: type[EngineCoreError], call: Any, *args: Any, what: str) -> EngineCoreError:
    """The error that a call must raise: of this very type."""
    try:
        value = call(*args)
    except Exception as error:
        if type(error) is not kind:
            raise Violation(f"{what} raised {reasons(error)}", f"it raises {kind.__name__}") from error
        return error
    raise Violation(f"{what} gave {value!r:.200}", f"it raises {kind.__name__}")
