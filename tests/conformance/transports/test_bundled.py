"""The transports that come with enginecore, and that of the example, keep the contract of transports."""

import pytest

from enginecore.conformance.transports import CHANNEL_CHECKS, parametrize, prepare
from tests.conformance.transports.example import UNIX


@parametrize("inproc")
def test_inproc(check):
    check()


@parametrize("inproc", settings={"codec_round_trip": True})
def test_inproc_through_the_codec(check):
    check()


@parametrize("zmq")
def test_zmq(check):
    check()


OVER_TCP = [item for item in prepare("zmq", settings={"address": "tcp://127.0.0.1"}) if item.check in CHANNEL_CHECKS]


@pytest.mark.parametrize("check", OVER_TCP, ids=str)
def test_zmq_over_tcp(check):
    check()


@parametrize(UNIX.COMPONENT)
def test_unix_socket(check):
    check()
