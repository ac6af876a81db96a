"""Values and errors that an engine core's answers stand for."""

from typing import Any

import msgspec

from enginecore.core import utility_result_type
from enginecore.errors import EngineDeadError, InvalidRequestError, RemoteError, UtilityError
from enginecore.messages import LoopStats
from enginecore.wire import UtilityFailure, UtilityReply


def renewed(error: EngineDeadError) -> EngineDeadError:
    """A copy of an error, to be raised again: one object raised in several tasks would collect
    their tracebacks.
    """
    again = EngineDeadError(*error.args)
    again.__cause__ = error.__cause__
    return again


def value_of(name: str, reply: UtilityReply) -> Any:
    """The value that a control call returned, in the type that its utility declares.

    Raises:
        InvalidRequestError: the call was wrong.
        UtilityError: it failed.
        EngineDeadError: the engine core is dead.
    """
    match reply.failure:
        case None:
            kind = LoopStats if name == "get_loop_stats" else utility_result_type(name)
            return msgspec.convert(reply.value, kind)
        case UtilityFailure.INVALID:
            raise InvalidRequestError(reply.error)
        case UtilityFailure.FAILED:
            raise UtilityError(reply.error, reply.traceback)
        case UtilityFailure.DEAD:
            raise dead_error(reply.error, "")


def dead_error(reason: str, traceback: str) -> EngineDeadError:
    """The error for an engine core that has ended, caused by its traceback or else the reason."""
    error = EngineDeadError(reason)
    error.__cause__ = RemoteError(traceback or reason)
    return error
