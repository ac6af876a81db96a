"""The contract, by the kit; what is this transport's own; and an engine behind it."""

import socket
from contextlib import contextmanager

import pytest
from unix_socket_transport import COMPONENT, HEADER, UnixSocketSettings, UnixSocketTransport

from enginecore import LLM, SamplingParams
from enginecore.errors import ConfigurationError, InvalidRequestError
from enginecore_conformance import parametrize


@parametrize(COMPONENT)
def test_contract(check):
    check()


@contextmanager
def server(directory, limit=1 << 20):
    """An engine core's end, and the transport that made it."""
    transport = UnixSocketTransport(UnixSocketSettings(max_message_bytes=limit), None)
    server = transport.listen(directory)
    try:
        yield server, transport
    finally:
        server.close(0.0)


@pytest.mark.parametrize(
    "header",
    [
        HEADER.pack((1 << 20) + 1, 1),
        HEADER.pack(1 << 63, 1),
        HEADER.pack(8, 0),
        HEADER.pack(8, 2),
        HEADER.pack(8, 1) + (5).to_bytes(8),
    ],
    ids=["too large", "far too large", "no frames", "more frames than fit", "lengths that do not add up"],
)
def test_whoever_announces_nonsense_is_disconnected(tmp_path, header):
    with server(tmp_path) as (end, _), socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(end.address["path"])
        stranger.sendall(header)
        assert [end.receive() for _ in range(3)] == [None] * 3
        stranger.settimeout(10)
        assert stranger.recv(1) == b""


def test_the_limit_is_that_of_the_settings(tmp_path):
    with server(tmp_path, limit=4096) as (end, transport):
        channel = transport.open(end.address, 5.0)
        channel.send([bytes(4096 - 8)])
        with pytest.raises(InvalidRequestError, match=r"max_message_bytes = 4096"):
            channel.send([bytes(4096 - 8 + 1)])
        channel.close()


def test_a_path_that_is_too_long_is_refused(tmp_path):
    directory = tmp_path / ("x" * 100)
    directory.mkdir()
    with pytest.raises(ConfigurationError, match="it needs a short path"):
        UnixSocketTransport(UnixSocketSettings(), None).listen(directory)


def test_an_address_of_something_else_is_refused():
    with pytest.raises(ConfigurationError, match="has a path, and this one has None"):
        UnixSocketTransport(UnixSocketSettings(), None).open({"endpoint": "ipc:///tmp/x"}, 5.0)


def test_an_engine_runs_behind_it():
    with LLM(executor={"use": "oracle"}, transport={"use": "unix-socket"}, components=[COMPONENT]) as llm:
        params = SamplingParams(max_tokens=5, ignore_eos=True, detokenize=False)
        [output] = llm.generate([{"prompt_token_ids": [1, 2, 3]}], params, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 5
