"""Start-up: failures are told with their cause, in time, and leave nothing (field cases 61, 62, 86, 91)."""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from enginecore.client import make_async_client, make_client
from enginecore.clock import VirtualClock
from enginecore.errors import ConfigurationError, EngineCoreError, ModelError, PluginError, RemoteError
from enginecore.plugin import Component
from enginecore.settings import load_settings
from tests.client.starting import DEADLINE, ROOT, Traces, is_gone, load, python, running, wait_until
from tests.core.engines import request


@pytest.fixture(autouse=True)
def traces():
    traces = Traces()
    yield traces
    traces.check()


def test_an_error_on_purpose_is_the_same_error_here_with_its_traceback():
    with pytest.raises(ModelError, match="the model has no weights") as caught:
        make_client(load("refuses", "REFUSES"))
    assert isinstance(caught.value.__cause__, RemoteError)
    assert "refuse_at_start" in str(caught.value.__cause__)


def test_any_other_error_is_told_with_its_type_and_traceback():
    with pytest.raises(PluginError, match="'raises' cannot be built: RuntimeError: the device is on fire") as caught:
        make_client(load("raises", "RAISES"))
    assert "raise RuntimeError" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("name", "component", "said"),
    [("exits", "EXITS", "exited with code 3"), ("crashes", "CRASHES", "was killed by SIGSEGV")],
)
def test_a_process_that_ends_without_a_word_is_told(name, component, said):
    with pytest.raises(EngineCoreError, match=f"{said} before it was ready"):
        make_client(load(name, component))


def test_the_wait_has_a_deadline(tmp_path):
    settings = {"executor.loads-slowly.marker": str(tmp_path / "loading"), "startup_timeout": 0.5}
    with pytest.raises(EngineCoreError, match=r"not ready within startup_timeout = 0\.5 seconds"):
        make_client(load("loads-slowly", "LOADS_SLOWLY", **settings))


def test_the_asyncio_half_starts_alike():
    with pytest.raises(ModelError, match="no weights"):
        make_async_client(load("refuses", "REFUSES"))


def test_asyncio_on_inproc_is_refused_in_a_sentence():
    with pytest.raises(ConfigurationError, match="'inproc' runs the engine core in the caller's thread"):
        make_async_client(load(transport="inproc"))


def test_a_clock_of_ones_own_cannot_be_shared_with_a_process():
    with pytest.raises(ConfigurationError, match="a VirtualClock cannot be shared"):
        make_client(load(), clock=VirtualClock())


def test_a_component_that_no_process_can_import_is_refused_before_anything_starts():
    """Field case 127."""
    component = Component(kind="executor", name="mine", factory=lambda settings, context: None)
    loaded = load_settings({"transport.use": "zmq", "executor.use": "mine"}, components=[component], environ={})
    with pytest.raises(PluginError, match="other processes cannot import it"):
        make_client(loaded)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_loads_ends_it_soon(tmp_path, number):
    """Field case 61, sent to the engine core itself."""
    marker = tmp_path / "loading"
    failures = []

    def start():
        try:
            make_client(load("loads-slowly", "LOADS_SLOWLY", **{"executor.loads-slowly.marker": str(marker)}))
        except EngineCoreError as error:
            failures.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    wait_until(marker.exists, "it loads")
    (child,) = child_cores()
    os.kill(child, number)
    thread.join(DEADLINE)
    assert failures == [f"the engine core received {number.name} before it was ready"]
    assert is_gone(child)


def child_cores():
    import psutil

    return [p.pid for p in psutil.Process().children() if "enginecore-core" in p.cmdline()]


LOADING = """
from tests.client.starting import load
from enginecore.client import make_client
make_client(load("loads-slowly", "LOADS_SLOWLY", **{{"executor.loads-slowly.marker": {marker!r}}}))
"""


@pytest.mark.parametrize("how", ["ctrl-c", "SIGTERM", "SIGKILL"])
def test_a_front_end_that_ends_while_the_core_loads_takes_it_along(tmp_path, how):
    marker = tmp_path / "loading"
    front_end = python(LOADING.format(marker=str(marker)), start_new_session=True)
    wait_until(marker.exists, "it loads")
    children = children_of(front_end.pid)
    assert len(children) == 1
    if how == "ctrl-c":
        os.killpg(front_end.pid, signal.SIGINT)
    else:
        front_end.send_signal(getattr(signal, how))
    front_end.communicate(timeout=DEADLINE)
    assert front_end.returncode != 0
    wait_until(lambda: all(map(is_gone, children)), "the engine core is gone")


def children_of(pid):
    import psutil

    return [p.pid for p in psutil.Process(pid).children(recursive=True)]


def test_a_long_path_for_temporary_files_is_no_obstacle(tmp_path, monkeypatch):
    """Field case 86."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    with running(model="m" * 200) as client:
        assert client.info.components["transport"] == "zmq"
    assert list(folder.iterdir()) == []


def test_no_place_for_sockets_is_said(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/" + "y" * 120)
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ConfigurationError, match="set TMPDIR to a short path"):
        make_client(load())


SCRIPT = """
from enginecore import LLM, SamplingParams
llm = LLM("oracle", executor={"use": "oracle"}, transport={"use": "zmq"}, max_model_len="auto", num_kv_blocks=32)
outputs = llm.generate([[5, 6, 7]], SamplingParams(temperature=0, max_tokens=3, detokenize=False), use_tqdm=False)
print(len(outputs[0].outputs[0].token_ids))
llm.shutdown()
"""


@pytest.mark.parametrize("how", ["script", "stdin", "-c"])
def test_it_starts_from_any_kind_of_main(tmp_path, how):
    """Field case 91: without a main guard, from standard input as a notebook would, and from -c."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = {"script": [str(script)], "stdin": ["-"], "-c": ["-c", SCRIPT]}[how]
    done = subprocess.run(
        [sys.executable, *command],
        input=SCRIPT if how == "stdin" else None,
        capture_output=True,
        text=True,
        timeout=DEADLINE * 2,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_two_engines_run_side_by_side():
    with running() as one, running() as other:
        assert one.engine_core_pid != other.engine_core_pid
        for client in (one, other):
            client.add_request(request("r", max_tokens=2))
        assert len(one.get_output().outputs) == len(other.get_output().outputs) == 1


def test_a_fork_of_the_front_end_is_told_that_the_engine_is_not_its_own():
    with running() as client:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                client.shutdown()
                client.add_request(request("r"))
            except EngineCoreError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        said = os.read(reading, 1000).decode()
        os.close(reading)
        os.waitpid(pid, 0)
        assert "forked from it" in said
        client.add_request(request("r", max_tokens=1))  # and the engine is none the worse
        assert client.get_output().outputs[0].request_id == "r"


def test_an_engine_that_is_forgotten_is_ended():
    client: Any = make_client(load())
    pid = client.engine_core_pid
    del client
    wait_until(lambda: is_gone(pid), "the engine core is gone")


def test_start_and_stop_take_no_time_worth_mentioning_ten_times():
    begin = time.monotonic()
    for _ in range(10):
        with running():
            pass
    assert time.monotonic() - begin < 10 * DEADLINE
