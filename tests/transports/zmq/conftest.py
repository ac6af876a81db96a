import shutil
import tempfile
from pathlib import Path

import pytest

from tests.transports.zmq.ends import serving, transport


@pytest.fixture
def directory():
    """As the kernel makes it: private, with a short path."""
    path = Path(tempfile.mkdtemp(prefix="ec-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(params=["ipc", "tcp://127.0.0.1"])
def zmq(request):
    """The transport, with each kind of address."""
    return transport(request.param)


@pytest.fixture
def server(zmq, directory):
    """An engine core's end of `zmq`."""
    with serving(zmq, directory) as server:
        yield server
