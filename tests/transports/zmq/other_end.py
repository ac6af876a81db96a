"""An end of a line in a process of its own, to be killed or stopped. Run with: a job, an address and more, as JSON.

Says each thing on a line of standard output, and waits for a line of standard input before the next.
"""

import hashlib
import json
import sys
from pathlib import Path

from tests.transports.zmq.ends import PATIENCE, serving, take, take_plain, transport


def say(**facts):
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def pause():
    sys.stdin.readline()


def front_end(address, scheme, messages=1):
    """Sends so many messages, then waits."""
    channel = transport(scheme).open(address, PATIENCE)
    say(open=True)
    pause()
    for number in range(messages):
        channel.send([b"%d" % number])
    pause()


def reader(address, scheme, messages):
    """Says hello, then reads when it is told to."""
    channel = transport(scheme).open(address, PATIENCE)
    say(open=True)
    pause()
    channel.send([b"hello"])
    pause()
    digest = hashlib.sha256()
    for _ in range(messages):
        for frame in take(channel):
            digest.update(frame)
    say(digest=digest.hexdigest())
    pause()
    channel.close()


def engine_core(directory, scheme, messages, linger=None):
    """Answers the first hello by so many messages; closes its end, or waits."""
    with serving(transport(scheme), Path(directory)) as server:
        say(address=dict(server.channel.address))
        peer, _ = take_plain(server.channel)
        for number in range(messages):
            server.channel.send(peer, [b"%d" % number, b"x" * 1000])
        if linger is not None:
            server.channel.close(linger)
        say(sent=True)
        pause()


if __name__ == "__main__":
    job, words = json.loads(sys.argv[1])
    {"front_end": front_end, "reader": reader, "engine_core": engine_core}[job](**words)
