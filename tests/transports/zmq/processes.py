"""The test's side of `other_end`."""

import json
import select
import subprocess
import sys


class OtherEnd:
    """A child process with one end of a line; killed when its block ends."""

    def __init__(self, job, **words):
        command = [sys.executable, "-m", "tests.transports.zmq.other_end", json.dumps([job, words])]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._stdin, self._stdout = self.popen.stdin, self.popen.stdout

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.popen.kill()
        self.popen.wait()
        self._stdin.close()
        self._stdout.close()

    def has_spoken(self):
        """Whether `hear` will not wait."""
        return bool(select.select([self._stdout], [], [], 0)[0])

    def hear(self):
        """The next that it says."""
        line = self._stdout.readline()
        assert line, f"the other end is gone: {self.popen.wait()}"
        return json.loads(line)

    def go_on(self):
        """Let it do the next thing."""
        self._stdin.write(b"\n")
        self._stdin.flush()

    def kill(self):
        """SIGKILL."""
        self.popen.kill()
        self.popen.wait()

    def signal(self, number):
        self.popen.send_signal(number)
