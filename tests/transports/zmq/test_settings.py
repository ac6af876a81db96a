"""What the settings of `zmq` allow, and that they reach another process."""

import json
import subprocess
import sys
from ipaddress import ip_address

import pytest

from enginecore.errors import ConfigurationError
from enginecore.settings import load_settings, restore_settings
from enginecore_zmq.settings import ZmqSettings

FILES = {"server_key_file": "/keys/server.key_secret", "client_key_file": "/keys/client.key_secret"}


def test_unix_sockets_are_the_default():
    assert ZmqSettings().tcp is None


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("tcp://127.0.0.1", "127.0.0.1", 0),
        ("tcp://127.0.0.1:0", "127.0.0.1", 0),
        ("tcp://127.8.0.1:65535", "127.8.0.1", 65535),
        ("tcp://localhost:5555", "127.0.0.1", 5555),
        ("tcp://[::1]", "::1", 0),
        ("tcp://[::1]:5555", "::1", 5555),
    ],
)
def test_loopback_addresses_need_no_keys(address, host, port):
    assert ZmqSettings(address=address).tcp == (ip_address(host), port)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("tcp://*:5555", "0.0.0.0"),
        ("tcp://0.0.0.0:5555", "0.0.0.0"),
        ("tcp://[::]:5555", "::"),
        ("tcp://192.168.0.1:5555", "192.168.0.1"),
        ("tcp://[fe80::1]:5555", "fe80::1"),
        ("tcp://[::ffff:127.0.0.1]:5555", "::ffff:127.0.0.1"),  # not worth a second look
    ],
)
def test_addresses_that_others_can_reach_need_keys(address, host):
    assert ZmqSettings.model_validate({"address": address, "curve": FILES}).tcp == (ip_address(host), 5555)
    with pytest.raises(ConfigurationError) as error:
        load_settings({"transport.zmq.address": address}, environ={})
    assert f"address '{address}' can be reached from other machines" in str(error.value)
    assert "curve.server_key_file and curve.client_key_file" in str(error.value)


@pytest.mark.parametrize(
    "address",
    [
        "", "tcp", "tcp://", "tcp:127.0.0.1", "ipc:///tmp/x", "udp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:x",
        "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1", "tcp://127.0.0.1:1:2", "tcp://::1", "tcp://[::1", "tcp://[::1]x",
        "tcp://[127.0.0.1]", "tcp://example.org:1", "tcp://eth0:1", "tcp://127.1", "tcp://127.0.0.1 ", "IPC",
        "tcp://127.0.0.1/x", "tcp://127.0.0.1\n",
    ],
)  # fmt: skip
def test_other_addresses_are_refused(address):
    with pytest.raises(ConfigurationError) as error:
        load_settings({"transport.zmq.address": address}, environ={})
    assert "must be ipc, tcp://HOST or tcp://HOST:PORT" in str(error.value)


@pytest.mark.parametrize("size", [0, -1, 4095, "big"])
def test_message_sizes_that_are_refused(size):
    with pytest.raises(ConfigurationError, match="max_message_size"):
        load_settings({"transport.zmq.max_message_size": size}, environ={})


def test_settings_reach_another_process_and_hold_no_secret():
    table = {"address": "tcp://0.0.0.0:5555", "max_message_size": 4096, "curve": FILES}
    loaded = load_settings({"transport": {"use": "zmq", "zmq": table}}, environ={})
    plain = json.loads(json.dumps(loaded.to_plain()))
    settings = restore_settings(plain).settings.component("transport").settings
    assert settings == loaded.settings.component("transport").settings == ZmqSettings.model_validate(table)
    assert plain["settings"]["transport"]["zmq"] == table  # names of files, no keys


def test_zmq_is_not_imported_before_it_is_used():
    code = "import sys, enginecore_zmq; list(enginecore_zmq.enginecore_components()); print('zmq' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "False\n"
