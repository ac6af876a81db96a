"""The errors that enginecore raises on purpose. Everything else that escapes is a bug."""


class EngineCoreError(Exception):
    """Base of every error raised on purpose."""


class ConfigurationError(EngineCoreError):
    """Settings, or a combination of components, that cannot work. Raised at start-up, never at the first request."""


class PluginError(EngineCoreError):
    """A plugin or component that is missing, broken or offered twice."""


class ModelError(EngineCoreError):
    """A model that is missing, truncated or not supported. Names the file and what would do."""


class InvalidRequestError(EngineCoreError, ValueError):
    """A refused request. Other requests go on."""


class UtilityError(EngineCoreError):
    """A control call failed in the engine core, which goes on.

    Attributes:
        traceback: Traceback of the failure, as text.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class EngineDeadError(EngineCoreError):
    """The engine core has failed; its `__cause__` is the reason. Every later call raises it too."""


class RemoteError(EngineCoreError):
    """The traceback of another process, as text: the `__cause__` of errors that came from there."""


class StepError(EngineCoreError):
    """A step failed. Says what was scheduled by id and counts; never shows a prompt."""


class InvariantError(EngineCoreError, AssertionError):
    """An invariant of the engine does not hold: a bug in a component. Raised by checks, never in normal operation."""
