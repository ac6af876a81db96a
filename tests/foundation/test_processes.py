"""Child processes, seen from the parent. Whoever waits here waits for an event: a report, the end of a process."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from enginecore.errors import EngineCoreError
from enginecore.processes import ChildProcess

TIMEOUT = 30.0
CHILDREN = "tests.foundation.children"
ROOT = Path(__file__).parents[2]


class Starter:
    """Starts children that are gone when the test is over."""

    def __init__(self) -> None:
        self.started: list[ChildProcess] = []

    def __call__(self, function: str, **payload: Any) -> ChildProcess:
        child = ChildProcess(f"{CHILDREN}:{function}", payload, title="test-child")
        self.started.append(child)
        return child


@pytest.fixture
def start() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    for child in starter.started:
        child.kill()


def facts(child: ChildProcess) -> dict[str, Any]:
    report = child.receive(TIMEOUT)
    assert report is not None, child.exit_text
    said: dict[str, Any] = json.loads(report)
    return said


class Watched:
    """Any process, by its id: also one that is not our child."""

    def __init__(self, pid: int) -> None:
        self.fd = os.pidfd_open(pid)

    def ends(self, timeout: float = TIMEOUT) -> bool:
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        ended = bool(poll.poll(timeout * 1000))
        if not ended:
            signal.pidfd_send_signal(self.fd, signal.SIGKILL)
        os.close(self.fd)
        return ended


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- what it is told and what it tells -------------------------------------------------------------------------------


def test_the_payload_the_title_and_the_path_arrive(start: Starter) -> None:
    payload = {"text": "\N{GRINNING FACE}\udcff", "list": [1, None, {"deep": -1.5}], "long": "x" * 200_000}
    said = facts(start("echo", **payload))
    assert said == {"payload": payload, "title": ["test-child"], "path": sys.path, "stdin": ""}


def test_reports_arrive_whole_and_in_order_then_the_end(start: Starter) -> None:
    sizes = [0, 1, 3, 70_000, 1_000_003, 0, 5]
    child = start("report_sizes", sizes=sizes)
    assert [child.receive(TIMEOUT) for _ in sizes] == [bytes([size % 256]) * size for size in sizes]
    assert child.receive(TIMEOUT) is None
    assert child.has_ended
    assert child.receive(TIMEOUT) is None
    assert child.wait(TIMEOUT)
    assert child.exit_text == "exited with code 0"


def test_reports_outlive_their_sender(start: Starter) -> None:
    child = start("report_sizes", sizes=[3, 5])
    assert child.wait(TIMEOUT)
    assert child.has_ended
    assert child.receive(0) == b"\x03" * 3
    assert child.receive(0) == b"\x05" * 5
    assert child.receive(0) is None


def test_no_report_yet_is_none_and_no_end(start: Starter) -> None:
    child = start("stay")
    facts(child)
    assert child.receive(0) is None
    assert child.receive(0.01) is None
    assert not child.has_ended
    assert not child.wait(0)
    assert child.exit_text == "is running"


def test_its_descriptor_is_readable_once_there_is_news(start: Starter) -> None:
    child = start("leave", code=0)
    poll = select.poll()
    poll.register(child.fileno(), select.POLLIN)
    assert poll.poll(TIMEOUT * 1000)
    assert child.has_ended


def test_what_something_else_wrote_into_the_pipe_is_an_error(start: Starter) -> None:
    child = start("report_nonsense")
    with pytest.raises(EngineCoreError, match=f"process {child.pid}: a message of 4294967295 bytes is announced"):
        child.receive(TIMEOUT)


# -- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "payload", "text"),
    [
        ("leave", {"code": 0}, "exited with code 0"),
        ("leave", {"code": 77}, "exited with code 77"),
        ("fail", {}, "exited with code 1"),
        ("die", {"signal": signal.SIGKILL}, "was killed by SIGKILL"),
        ("die", {"signal": signal.SIGSEGV}, "was killed by SIGSEGV"),
        ("die", {"signal": signal.SIGTERM}, "was killed by SIGTERM"),
        ("die", {"signal": signal.SIGRTMIN + 3}, f"exited with code {-signal.SIGRTMIN - 3}"),
    ],
)
def test_how_it_ended_is_said(start: Starter, function: str, payload: dict[str, Any], text: str) -> None:
    child = start(function, **payload)
    assert child.receive(TIMEOUT) is None
    assert child.has_ended
    assert child.wait(TIMEOUT)
    assert child.exit_text == text


def test_a_child_that_dies_before_it_reads_its_payload_is_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    child = ChildProcess(f"{CHILDREN}:echo", {"long": "x" * 1_000_000}, title="x")
    assert child.receive(TIMEOUT) is None
    assert child.has_ended
    assert child.wait(TIMEOUT)
    assert child.exit_text == "exited with code 1"
    child.kill()


def test_terminate_asks_it_to_end_whatever_the_parents_thread_has_blocked(start: Starter) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = start("stay")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    facts(child)
    child.terminate()
    assert child.wait(TIMEOUT)
    assert child.exit_text == "was killed by SIGTERM"
    child.terminate()


def test_kill_ends_it_and_may_be_repeated(start: Starter) -> None:
    child = start("stay")
    facts(child)
    for _ in range(3):
        child.kill()
        assert child.exit_text == "was killed by SIGKILL"
        assert child.has_ended
        assert child.receive(1) is None
        assert child.wait(0)
    child.terminate()


def test_one_thread_may_wait_while_another_kills(start: Starter) -> None:
    child = start("stay")
    facts(child)
    results: list[bool] = []
    waiter = threading.Thread(target=lambda: results.append(child.wait(TIMEOUT)))
    waiter.start()
    child.kill()
    waiter.join(TIMEOUT)
    assert results == [True]


def test_kill_ends_its_own_children_too(start: Starter) -> None:
    child = start("leave_sleepers", stay=True)
    sleepers = [Watched(pid) for pid in facts(child)["pids"]]
    child.kill()
    assert [sleeper.ends() for sleeper in sleepers] == [True] * 3


@pytest.mark.parametrize("notice", ["kill", "wait", "exit_text", "terminate"])
def test_its_end_is_seen_although_its_children_live_and_whoever_notices_ends_them(start: Starter, notice: str) -> None:
    child = start("leave_sleepers", stay=False)
    sleepers = [Watched(pid) for pid in facts(child)["pids"]]
    assert child.receive(TIMEOUT) is None
    assert child.has_ended, "the sleepers do not keep the pipe open"
    assert Watched(child.pid).ends()
    match notice:
        case "wait":
            assert child.wait(TIMEOUT)
        case "exit_text":
            assert child.exit_text == "exited with code 5"
        case _:
            getattr(child, notice)()
    assert [sleeper.ends() for sleeper in sleepers] == [True] * 3


def test_forked_children_of_forked_children_keep_their_own_files(start: Starter, tmp_path: Path) -> None:
    child = start("fork_twice", file=str(tmp_path / "file"))
    assert child.wait(TIMEOUT)
    assert [path.name for path in tmp_path.iterdir()] == ["file.20"]


# -- without its parent ----------------------------------------------------------------------------------------------

STARTS_ONE = f"""
import sys
from enginecore.processes import ChildProcess
child = ChildProcess("{CHILDREN}:%s", {{"file": %r}}, title="test-child")
print(child.receive({TIMEOUT}).decode(), flush=True)
sys.stdin.read()
"""


def orphaned(function: str, file: str = "") -> int:
    """The id of a child whose parent was killed at once after its first report."""
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE % (function, file)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin
    assert parent.stdout
    with parent.stdin, parent.stdout:
        pid: int = json.loads(parent.stdout.readline())["pid"]
        parent.kill()
    parent.wait(TIMEOUT)
    return pid


def test_a_child_whose_parent_is_killed_goes_by_itself() -> None:
    pid = orphaned("stay")
    try:
        child = Watched(pid)
    except ProcessLookupError:
        return  # gone already
    assert child.ends()


def test_a_report_to_a_parent_that_is_gone_is_lost_in_silence(tmp_path: Path) -> None:
    file = tmp_path / "file"
    pid = orphaned("outlive", str(file))
    try:
        assert Watched(pid).ends()
    except ProcessLookupError:
        pass
    assert file.read_text() == "outlived"


# -- where it is started from ----------------------------------------------------------------------------------------

ECHOES = f"""
import json
from enginecore.processes import ChildProcess
child = ChildProcess("{CHILDREN}:echo", {{"a": 1}}, title="test-child")
report = child.receive({TIMEOUT})
child.kill()
print(json.loads(report)["payload"], flush=True)
"""


@pytest.mark.parametrize("way", ["-c", "-", "script", "module"])
def test_a_child_starts_from_wherever_its_parent_came(way: str, tmp_path: Path) -> None:
    (tmp_path / "without_guard.py").write_text(ECHOES)
    arguments = {
        "-c": ["-c", ECHOES],
        "-": ["-"],
        "script": [str(tmp_path / "without_guard.py")],
        "module": ["-m", "without_guard"],
    }
    result = subprocess.run(
        [sys.executable, *arguments[way]],
        input=ECHOES if way == "-" else "",
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (result.stdout, result.stderr, result.returncode) == ("{'a': 1}\n", "", 0), (
        "once, not once more in the child"
    )


def test_nothing_that_lies_in_the_working_directory_is_imported_first(
    start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert facts(start("echo"))["payload"] == {}


PRINTS = f"""
import os, sys
for fd in {{closed}}:
    os.close(fd)
from enginecore.processes import ChildProcess
child = ChildProcess("{CHILDREN}:print_then_report", {{{{}}}}, title="test-child")
report = child.receive({TIMEOUT})
child.kill()
with open(sys.argv[1], "wb") as file:
    file.write(report or child.exit_text.encode())
os._exit(0)
"""


@pytest.mark.parametrize("closed", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
def test_standard_streams_may_be_closed_and_what_it_prints_goes_to_standard_error(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    file = tmp_path / "report"
    result = subprocess.run(
        [sys.executable, "-c", PRINTS.format(closed=closed), str(file)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT,
    )
    assert file.read_bytes() == b'{"done": true}'
    assert result.stdout == b""
    assert result.stderr == (b"" if 2 in closed else b"to stdout\nto stderr\n")


HAS_MANY_FILES = f"""
import os, resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2000) if most > 0 else 2000, most))
while os.dup(0) < 1500:
    pass
{ECHOES}
"""


def test_a_parent_may_have_more_files_open_than_select_can_hold() -> None:
    result = subprocess.run(
        [sys.executable, "-c", HAS_MANY_FILES], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert (result.stdout, result.stderr) == ("{'a': 1}\n", "")


# -- nothing is left -------------------------------------------------------------------------------------------------


def test_it_holds_nothing_of_its_parents_but_the_streams_and_the_pipe(start: Starter) -> None:
    with open(os.devnull) as file:
        os.set_inheritable(file.fileno(), True)
        fds = facts(start("stay"))["fds"]
    assert len(fds) == 5, "three streams, the pipe, and the one that listed them"


def test_no_descriptor_is_left_of_children_that_were_killed(start: Starter) -> None:
    start("leave", code=0).kill()
    before = open_fds()
    for function in ("stay", "leave"):
        start(function, code=0).kill()
    assert open_fds() == before


def test_no_descriptor_and_no_process_is_left_of_a_start_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_fds(), psutil.Process().children()
    with pytest.raises(TypeError, match="not JSON serializable"):
        ChildProcess(f"{CHILDREN}:echo", {"object": object()}, title="x")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        ChildProcess(f"{CHILDREN}:echo", {}, title="x")
    assert (open_fds(), psutil.Process().children()) == before
