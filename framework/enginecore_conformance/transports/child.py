"""Jobs of child processes that checks start and kill."""

import json
import os
import select
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginecore.interfaces import Transport
from enginecore.processes import Parent
from enginecore.settings import restore_settings
from enginecore_conformance.transports.bench import make_transport
from enginecore_conformance.transports.payloads import message


def front_end(payload: Mapping[str, Any], parent: Parent) -> int:
    """Open `address`, say hello, and once answered send `count` messages with a frame of `size`
    bytes; report, stay.
    """
    channel = _transport(payload, parent).open(payload["address"], 30.0)
    channel.send([b"hello"])
    while channel.receive() is None:
        select.select([channel.fileno()], [], [])
    for number in range(payload["count"]):
        channel.send(message(number, payload["size"]))
    parent.report(json.dumps("sent").encode())
    return _stay()


def engine_core(payload: Mapping[str, Any], parent: Parent) -> int:
    """Listen in `directory`, report the address; send such messages to the first who says a word;
    report, stay.
    """
    server = _transport(payload, parent).listen(Path(payload["directory"]))
    parent.report(json.dumps(dict(server.address)).encode())
    while (received := server.receive()) is None:
        select.select([server.fileno()], [], [])
    for number in range(payload["count"]):
        server.send(received[0], message(number, payload["size"]))
    parent.report(json.dumps("sent").encode())
    return _stay()


def _transport(payload: Mapping[str, Any], parent: Parent) -> Transport:
    parent.watch(lambda: os._exit(1))
    loaded = restore_settings(payload["loaded"])
    component = loaded.registry.get("transport", loaded.settings.component("transport").name)
    return make_transport(component, loaded)


def _stay() -> int:
    """Until killed."""
    threading.Event().wait()
    return 0
