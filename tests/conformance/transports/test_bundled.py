"""The transports that come with enginecore, and that of the example, keep the contract of transports."""

from enginecore.conformance.transports import parametrize
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


@parametrize(UNIX.COMPONENT)
def test_unix_socket(check):
    check()
