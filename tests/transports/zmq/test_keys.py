"""CURVE: who gets in, and what is said to those who do not."""

import logging
import os

import pytest
import zmq.auth

from enginecore.errors import ConfigurationError
from enginecore_zmq.keys import KeyPair
from tests.transports.zmq.ends import serving, take_plain, transport

REFUSED = "does not allow this front end's key"


@pytest.fixture
def keys(tmp_path):
    """A folder with certificates of an engine core, a front end and somebody else."""
    for name in ("server", "client", "other"):
        zmq.auth.create_certificates(tmp_path, name)
        os.chmod(tmp_path / f"{name}.key_secret", 0o600)
    return tmp_path


def with_keys(keys, server="server.key_secret", client="client.key_secret", address="tcp://127.0.0.1"):
    return transport(address, curve={"server_key_file": keys / server, "client_key_file": keys / client})


def expect_talk(server, front_end, address=None):
    channel = server.open(front_end, address)
    channel.send([b"hello"])
    peer, frames = take_plain(server.channel)
    assert frames == [b"hello"]
    server.channel.send(peer, [b"welcome"])
    assert take_plain(channel) == [b"welcome"]
    channel.close()
    assert take_plain(server.channel) == (peer, None)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1", "tcp://[::1]", "ipc"])
def test_each_side_needs_its_own_secret_and_the_others_public_key(keys, directory, address):
    engine_core = with_keys(keys, client="client.key", address=address)
    front_end = with_keys(keys, server="server.key", address=address)
    with serving(engine_core, directory) as server:
        assert list(server.channel.address) == ["endpoint"]  # both sides have their keys
        expect_talk(server, front_end)


@pytest.mark.parametrize("address", ["tcp://*", "tcp://0.0.0.0", "tcp://[::]"])
def test_an_engine_core_with_keys_may_listen_everywhere(keys, directory, address):
    with serving(with_keys(keys, address=address), directory) as server:
        seen = server.channel.address["endpoint"]
        assert seen.startswith("tcp://[::1]:" if "[" in address else "tcp://127.0.0.1:")
        expect_talk(server, with_keys(keys))
        port = seen.rpartition(":")[2]
        expect_talk(server, with_keys(keys), {"endpoint": f"tcp://127.0.0.2:{port}" if "[" not in address else seen})


def test_another_key_is_refused_at_once(keys, directory):
    with serving(with_keys(keys), directory) as server:
        with pytest.raises(ConnectionError, match=REFUSED):
            server.open(with_keys(keys, client="other.key_secret"))
        expect_talk(server, with_keys(keys))


def test_a_front_end_talks_to_no_engine_core_but_the_one_it_knows(keys, directory):
    with serving(with_keys(keys), directory) as server:
        with pytest.raises(ConnectionError, match="or none that has the keys that this front end expects"):
            server.open(with_keys(keys, server="other.key_secret"), timeout=0.3)
        expect_talk(server, with_keys(keys))


def test_without_keys_nobody_gets_in_over_tcp(keys, directory):
    with serving(with_keys(keys), directory) as server:
        with pytest.raises(ConfigurationError, match=r"takes encrypted messages only: transport.zmq.curve must name"):
            server.open(transport("tcp://127.0.0.1"))
        expect_talk(server, with_keys(keys))


def test_fresh_keys_are_of_use_for_one_engine_only(tmp_path, directory):
    tcp = transport("tcp://127.0.0.1")
    with serving(tcp, directory) as server, serving(tcp, tmp_path) as other:
        ours, theirs = server.channel.address["keys"], other.channel.address["keys"]
        assert not set(ours.values()) & set(theirs.values())
        mixed = {"endpoint": server.channel.address["endpoint"], "keys": theirs | {"server": ours["server"]}}
        with pytest.raises(ConnectionError, match=REFUSED):
            server.open(tcp, mixed)
        expect_talk(server, tcp)


# -- certificates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"server": "server.key"}, r"certificate .*server.key holds no secret key: name the file that does"),
        (
            {"server": "missing.key_secret"},
            r"certificate .*missing.key_secret cannot be read: Invalid",
        ),
        ({"client": "missing.key"}, r"certificate .*missing.key cannot be read"),
        ({"server": "empty"}, r"certificate .*empty cannot be read: No public key"),
        ({"client": "short"}, r"certificate .*short cannot be read: a key has 32 bytes"),
        ({"client": "strange"}, r"certificate .*strange cannot be read"),
        ({"server": "mixed"}, r"certificate .*mixed: the two keys do not belong together"),
    ],
)
def test_certificates_that_will_not_do(keys, directory, words, message):
    (keys / "empty").write_text("metadata\n")
    (keys / "short").write_text('curve\n    public-key = "abcde"\n')
    (keys / "strange").write_text('curve\n    public-key = "' + "~" * 40 + '"\n')
    public, _ = zmq.auth.load_certificate(keys / "server.key")
    _, secret = zmq.auth.load_certificate(keys / "other.key_secret")
    assert secret is not None
    (keys / "mixed").write_text(f'curve\n    public-key = "{public.decode()}"\n    secret-key = "{secret.decode()}"\n')
    with pytest.raises(ConfigurationError, match=message) as error:
        with_keys(keys, **words).listen(directory)
    assert secret.decode() not in str(error.value)


def test_a_front_end_needs_its_secret(keys, directory):
    with (
        serving(with_keys(keys), directory) as server,
        pytest.raises(ConfigurationError, match=r"client.key holds no secret key"),
    ):
        server.open(with_keys(keys, client="client.key"))


def test_a_secret_that_others_can_read_is_mentioned(keys, directory, caplog):
    os.chmod(keys / "server.key_secret", 0o644)
    with caplog.at_level(logging.WARNING), serving(with_keys(keys), directory):
        pass
    assert "server.key_secret can be read by others: chmod 600 keeps them out" in caplog.text


def test_secrets_are_not_shown():
    pair = KeyPair.fresh()
    assert pair.secret.decode() not in repr(pair)
    assert str(pair.secret) not in repr(pair)
