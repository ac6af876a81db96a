"""The transports that come with enginecore, and that of the example, keep the contract of transports."""

import pytest

from enginecore_conformance import parametrize, prepare
from enginecore_conformance.transports import CHANNEL_CHECKS, CLIENT_CHECKS
from tests.conformance.transports.example import UNIX


@parametrize("transport:inproc")
def test_inproc(check):
    check()


@parametrize("transport:inproc", settings={"codec_round_trip": True})
def test_inproc_through_the_codec(check):
    check()


@parametrize("transport:zmq")
def test_zmq(check):
    check()


def channel_checks(component, **options):
    return [item for item in prepare(component, **options) if item.check in CHANNEL_CHECKS]


@pytest.mark.parametrize("check", channel_checks("transport:zmq", settings={"address": "tcp://127.0.0.1"}), ids=str)
def test_zmq_over_tcp(check):
    check()


@pytest.mark.parametrize("check", channel_checks(UNIX.COMPONENT), ids=str)
def test_unix_socket(check):
    check()


@pytest.mark.full  # each starts an engine; the kernel's part of it is checked behind zmq
@pytest.mark.parametrize("check", [item for item in prepare(UNIX.COMPONENT) if item.check in CLIENT_CHECKS], ids=str)
def test_clients_over_a_unix_socket(check):
    check()
