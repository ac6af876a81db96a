"""The control channel of `multiproc`: orders and answers, msgpack over a pair of sockets.

Free of torch. Every order goes to all ranks, in the same order, and has a number that its answers
name.
"""

import socket
import time
import traceback
from typing import Any

import msgspec

from enginecore import errors
from enginecore.errors import EngineCoreError, RemoteError
from enginecore.framing import FrameReader, framed
from enginecore.messages import Message, ModelRunnerOutput, SchedulerOutput
from enginecore_torch.rank import RankInfo

MAX_TRACEBACK = 20_000


# -- executor -> workers ---------------------------------------------------------------------------


class RunStep(Message, tag=1):
    """Run a step, its forward pass alone where the plan defers sampling.

    Attributes:
        number: Number of the order.
        plan: What to run.
        sampled: Tokens of earlier steps that the first stage lacks: number of the step, a token per
            sampled row.
    """

    number: int
    plan: SchedulerOutput
    sampled: list[tuple[int, list[int]]]


class CallMethod(Message, tag=2):
    """Call a method of the runner."""

    number: int
    method: str
    args: list[Any]


class MeasureMemory(Message, tag=3):
    """Measure the memory that is free for the KV cache."""

    number: int


class InitializeKVCache(Message, tag=4):
    """Allocate the KV cache and warm up."""

    number: int
    num_blocks: int


class SampleStep(Message, tag=5):
    """Sample a step whose plan deferred it.

    Attributes:
        number: Number of the order.
        step: Number of the plan.
    """

    number: int
    step: int


# -- workers -> executor ---------------------------------------------------------------------------


class RankReady(Message, tag=1):
    """The first message: weights are loaded."""

    info: RankInfo


class CallDone(Message, tag=2):
    """The result of an order that every rank answers."""

    number: int
    value: Any = None


class StepDone(Message, tag=3):
    """The output of a step, from the output rank."""

    number: int
    output: ModelRunnerOutput


class CallFailed(Message, tag=4):
    """The method raised, or there is none. The worker goes on."""

    number: int
    kind: str
    message: str
    traceback: str


class RankFailed(Message, tag=5):
    """The last message: this rank has failed and ends.

    Attributes:
        kind: Class of the error.
        message: Its text.
        traceback: As text.
        when: Seconds on the clock that all processes of this machine share.
    """

    kind: str
    message: str
    traceback: str
    when: float


Order = RunStep | CallMethod | MeasureMemory | InitializeKVCache | SampleStep
Answer = RankReady | CallDone | StepDone | CallFailed | RankFailed

_encoder = msgspec.msgpack.Encoder()
_orders = msgspec.msgpack.Decoder(Order)
_answers = msgspec.msgpack.Decoder(Answer)


def encode(message: Order | Answer) -> bytes:
    """The message as it is written to the socket.

    Raises:
        TypeError: it holds something that has no plain form.
        FramingError: it is too long.
    """
    return framed(_encoder.encode(message))


class WorkerEnd:
    """The worker's end of the pair."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._frames = FrameReader(self._socket.recv)

    def fileno(self) -> int:
        """Hangs up when the executor does."""
        return self._socket.fileno()

    def send(self, answer: Answer) -> None:
        """Send an answer."""
        self._socket.sendall(encode(answer))

    def receive(self) -> Order | None:
        """The next order, waited for without using the CPU. None: the executor has hung up."""
        data = self._frames.receive()
        return None if data is None else _orders.decode(data)


class ExecutorEnd:
    """The executor's end of the pair.

    One thread receives while others send, each under the executor's lock.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._frames = FrameReader(lambda size: connection.recv(size, socket.MSG_DONTWAIT))

    def fileno(self) -> int:
        """Readable when there is an answer, and when the worker has gone."""
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send an encoded order. OSError: the worker has gone."""
        self._socket.sendall(data)

    def receive(self) -> list[Answer]:
        """All answers that have arrived."""
        self._frames.read_available()
        return [_answers.decode(data) for data in iter(self._frames.receive, None)]

    def close(self) -> None:
        """Hang up; a sender that waits is woken."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()


# -- errors ----------------------------------------------------------------------------------------


def rank_failed(error: BaseException) -> RankFailed:
    """The last message of a worker."""
    return RankFailed(type(error).__name__, str(error), _text(error), time.monotonic())


def call_failed(number: int, error: Exception) -> CallFailed:
    """The answer to a call whose method raised."""
    return CallFailed(number, type(error).__name__, str(error), _text(error))


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]


def remote_error(rank: int, report: RankFailed | CallFailed) -> Exception:
    """The error as the executor raises it, with the worker's traceback as its cause.

    It is of the same class if that is one of enginecore's.
    """
    known = getattr(errors, report.kind, None)
    error: Exception
    if report.kind == "AttributeError":
        error = AttributeError(report.message)
    elif isinstance(known, type) and issubclass(known, EngineCoreError):
        error = known(report.message)
    else:
        error = EngineCoreError(f"rank {rank} failed: {report.kind}: {report.message}")
    error.__cause__ = RemoteError(report.traceback)
    return error
