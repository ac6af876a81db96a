"""The transport of `examples/third_party_transport`, imported from where it lies."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "examples" / "third_party_transport"
if str(FOLDER) not in sys.path:
    sys.path.append(str(FOLDER))  # processes that are started from here look there, too

UNIX: Any = import_module("unix_socket_transport")
