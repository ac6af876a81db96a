"""Bugs between a front end's client and the engine core, around `inproc`."""

import contextlib
import dataclasses
import threading
from typing import Any

import msgspec

from enginecore import interfaces
from enginecore.errors import EngineCoreError, EngineDeadError, InvalidRequestError, UtilityError
from enginecore.messages import EngineCoreOutputs, FinishReason
from enginecore_inproc.transport import Direct, InprocTransport


class Client(interfaces.EngineCoreClient):
    """Hands every call on."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def info(self):
        return self.inner.info

    @property
    def client_index(self):
        return self.inner.client_index

    def add_request(self, request):
        self.inner.add_request(request)

    def abort_requests(self, request_ids):
        self.inner.abort_requests(request_ids)

    def get_output(self):
        return self.inner.get_output()

    def call_utility(self, name, *args):
        return self.inner.call_utility(name, *args)

    def shutdown(self):
        self.inner.shutdown()


class Transport(interfaces.Transport):
    client: Any = Client
    caught_by = ""
    limits = 2.0, 5.0

    def __init__(self, settings, context):
        self.inner = InprocTransport(Direct(), context)

    def connect(self):
        return self.client(self.inner.connect())


class LosesMinTokens(Transport):
    caught_by = "tokens_are_those_of_the_model"

    class client(Client):
        def add_request(self, request):
            params = msgspec.structs.replace(request.params, min_tokens=0)
            self.inner.add_request(msgspec.structs.replace(request, params=params))


class LosesSalt(Transport):
    caught_by = "every_field_survives"

    class client(Client):
        def add_request(self, request):
            self.inner.add_request(msgspec.structs.replace(request, cache_salt=None))


class LosesLongHints(Transport):
    caught_by = "every_field_survives"

    class client(Client):
        def add_request(self, request):
            hints = {name: value for name, value in request.hints.items() if name}
            self.inner.add_request(msgspec.structs.replace(request, hints=hints))


class LosesStops(Transport):
    caught_by = "every_field_survives"

    class client(Client):
        def add_request(self, request):
            params = msgspec.structs.replace(request.params, stop=request.params.stop[:1])
            self.inner.add_request(msgspec.structs.replace(request, params=params))


class WithOutputs(Client):
    def get_output(self):
        outputs = self.inner.get_output()
        return msgspec.structs.replace(outputs, outputs=self.changed(outputs.outputs))

    def changed(self, outputs):
        return outputs


class LosesTerminalOutputs(Transport):
    caught_by = "tokens_are_those_of_the_model"

    class client(WithOutputs):
        def changed(self, outputs):
            return [output for output in outputs if output.finish_reason is None]


class ToldTwice(Transport):
    caught_by = "tokens_are_those_of_the_model"

    class client(WithOutputs):
        def changed(self, outputs):
            return [*outputs, *(output for output in outputs if output.finish_reason is not None)]


class LosesLogprobs(Transport):
    caught_by = "every_field_of_an_output_survives"

    class client(WithOutputs):
        def changed(self, outputs):
            return [msgspec.structs.replace(output, logprobs=None) for output in outputs]


class LosesErrors(Transport):
    caught_by = "every_field_of_an_output_survives"

    class client(WithOutputs):
        def changed(self, outputs):
            return [msgspec.structs.replace(output, error=None) for output in outputs]


class LosesCachedTokens(Transport):
    caught_by = "every_field_of_an_output_survives"

    class client(WithOutputs):
        def changed(self, outputs):
            return [msgspec.structs.replace(output, num_cached_tokens=0) for output in outputs]


class NeverIdle(Transport):
    caught_by = "tokens_are_those_of_the_model"

    class client(Client):
        def get_output(self):
            return EngineCoreOutputs(outputs=self.inner.get_output().outputs)


class ForgetsAborts(Transport):
    caught_by = "aborted_requests_are_forgotten"
    limits = 1.0, 1.5

    class client(Client):
        def abort_requests(self, request_ids):
            self.inner.abort_requests(list(request_ids)[1:])


class RaisesOnUnknownAborts(Transport):
    caught_by = "aborted_requests_are_forgotten"

    class client(Client):
        def abort_requests(self, request_ids):
            if "unknown" in request_ids:
                raise InvalidRequestError("who is that?")
            self.inner.abort_requests(request_ids)


class RefusesInSilence(Transport):
    caught_by = "refused_requests_are_answered"

    class client(Client):
        def add_request(self, request):
            with contextlib.suppress(InvalidRequestError):
                self.inner.add_request(request)


class RaisesSomethingElse(Transport):
    caught_by = "utilities_return_values_and_errors"

    class client(Client):
        def call_utility(self, name, *args):
            try:
                return self.inner.call_utility(name, *args)
            except InvalidRequestError as error:
                raise UtilityError(str(error)) from error


class HidesTheText(Transport):
    caught_by = "utilities_return_values_and_errors"

    class client(Client):
        def call_utility(self, name, *args):
            try:
                return self.inner.call_utility(name, *args)
            except UtilityError:
                raise UtilityError("something failed") from None


class ReturnsPlainData(Transport):
    caught_by = "utilities_return_values_and_errors"

    class client(Client):
        def call_utility(self, name, *args):
            value = self.inner.call_utility(name, *args)
            return msgspec.to_builtins(value) if name == "get_stats" else value


class ShutsDownOnce(Transport):
    caught_by = "shutdown_ends_everything"

    class client(Client):
        closed = False

        def shutdown(self):
            if self.closed:
                raise EngineDeadError("it is shut down")
            self.closed = True
            self.inner.shutdown()


class ForgetsWhatRan(Transport):
    caught_by = "shutdown_ends_everything"

    class client(WithOutputs):
        def changed(self, outputs):
            return [output for output in outputs if output.finish_reason is not FinishReason.ABORT]


class LivesOn(Transport):
    caught_by = "shutdown_ends_everything"

    class client(Client):
        def add_request(self, request):
            with contextlib.suppress(EngineDeadError):
                self.inner.add_request(request)


class AbortsAtOnce(Transport):
    caught_by = "shutdown_lets_requests_end"

    def __init__(self, settings, context):
        super().__init__(settings, dataclasses.replace(context, shutdown_timeout=0.0))


class LeavesThread(Transport):
    caught_by = "shutdown_leaves_nothing"

    class client(Client):
        def shutdown(self):
            self.inner.shutdown()
            threading.Timer(3.0, lambda: None).start()


class HidesTheCause(Transport):
    caught_by = "a_step_that_fails_ends_the_engine"

    class client(Client):
        def get_output(self):
            try:
                return self.inner.get_output()
            except EngineDeadError:
                raise EngineDeadError("it is dead") from None


class RaisesCauseItself(Transport):
    caught_by = "a_step_that_fails_ends_the_engine"

    class client(Client):
        def get_output(self):
            try:
                return self.inner.get_output()
            except EngineDeadError as error:
                raise EngineCoreError("it is dead") from error
