"""Something between two machines that cuts connections."""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes one TCP connection on to a server, until it cuts it."""

    def __init__(self, endpoint):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
        self._sockets = [self._listener]
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *error):
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self):
        """End the connection, and let nobody in again."""
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self):
        client, _ = self._listener.accept()
        server = socket.create_connection(self._target)
        self._sockets += [client, server]
        self._threads += [threading.Thread(target=_pass_on, args=ends) for ends in ((client, server), (server, client))]
        for thread in self._threads[1:]:
            thread.start()


def _pass_on(source, target):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
