"""Hidden costs of a component: time to import, and objects that it keeps."""

import gc
import json
import os
import subprocess
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from enginecore_conformance.checks import Violation
from enginecore_conformance.subject import Subject

HEAVY = ("torch", "transformers", "triton", "tensorflow", "jax", "vllm", "sklearn", "pandas", "matplotlib")
IMPORT_TIME = 1.5
"""Seconds of processor time that a plugin may take, once the toolkit is imported."""
_IMPORT = """
import json, sys, time
import enginecore.plugin, enginecore.scheduling, enginecore.kv_cache
started = time.process_time()
__import__(sys.argv[1])
print(json.dumps([time.process_time() - started, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def require_light_import(subject: Subject) -> None:
    """Import the module of a component in a new process. One that has no module of its own is not
    looked at.

    Raises:
        Violation: it imports too much.
    """
    module = subject.module
    if module is None:
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, module],
        env=environment, capture_output=True, text=True, timeout=subject.options.time_limit,
    )  # fmt: skip
    if done.returncode:
        raise Violation(f"importing {module} fails: {done.stderr[-2000:]}", "it can be imported")
    seconds, modules = json.loads(done.stdout)
    if heavy := [name for name in HEAVY if name in modules]:
        raise Violation(f"importing {module} imports {', '.join(heavy)}", "the factory imports what is heavy")
    if seconds > IMPORT_TIME:
        raise Violation(f"importing {module} took {seconds:.1f} s", f"less than {IMPORT_TIME} s")


def count_objects(root: Any) -> int:
    """Objects in reach, without what all objects reach."""
    gc.collect()
    seen: set[int] = set()
    queue = [root]
    while queue:
        found = queue.pop()
        if id(found) in seen or isinstance(found, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        seen.add(id(found))
        queue += gc.get_referents(found)
    return len(seen)
