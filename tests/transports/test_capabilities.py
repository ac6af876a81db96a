"""A transport offers what its component declares; what it has not overridden is named."""

from pathlib import Path
from typing import Any

import pytest

from enginecore.client import make_async_client, make_client
from enginecore.errors import ConfigurationError, PluginError
from enginecore.interfaces import Transport
from enginecore.plugin import Component
from enginecore.settings import load_settings


class Empty(Transport):
    """Overrides nothing."""

    def __init__(self, settings: Any, context: Any) -> None:
        pass


def load(capability: str) -> Any:
    component = Component(kind="transport", name="empty", factory=Empty, capabilities=frozenset({capability}))
    arguments = {"transport.use": "empty", "executor.use": "oracle"}
    return load_settings(arguments, components=[component], environ={})


def test_a_method_that_a_capability_requires_is_named_when_it_is_missing() -> None:
    with pytest.raises(PluginError, match=r'Empty has no connect\(\), which a transport that declares "sync" must'):
        make_client(load("sync"))
    transport = Empty(None, None)
    with pytest.raises(PluginError, match=r'Empty has no listen\(\), which a transport that declares "channels" must'):
        transport.listen(Path())
    with pytest.raises(PluginError, match=r"Empty has no open\(\)"):
        transport.open({}, 1.0)


def test_what_is_not_declared_is_not_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="runs the engine core in the caller's thread"):
        make_async_client(load("sync"))
