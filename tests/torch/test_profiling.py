"""Profiles of the executor `single`: a trace that a viewer reads, and errors that say what to do."""

import json

import pytest

from enginecore.errors import UtilityError
from tests.torch.tiny import Driver, make_executor, make_hf_model, make_source


@pytest.fixture
def executor():
    executor = make_executor(make_source(make_hf_model(num_hidden_layers=1)))
    yield executor
    executor.shutdown()


def test_each_profile_is_a_trace_of_its_own_in_the_folder(executor, tmp_path):
    driver = Driver(executor, range(64), 8)
    for number in range(2):
        assert executor.collective_rpc("start_profile", str(tmp_path / "new" / "traces")) == [None]
        driver.add(f"r{number}", [5, 6, 7])
        driver.generate(f"r{number}", 2)
        assert executor.collective_rpc("stop_profile") == [str(tmp_path / "new" / "traces" / f"rank0-{number}.json")]
    for path in (tmp_path / "new" / "traces").iterdir():
        names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
        assert "aten::embedding" in names


def test_it_cannot_be_started_twice_nor_stopped_before_it_was_started(executor, tmp_path):
    with pytest.raises(UtilityError, match="records nothing: call start_profile first"):
        executor.collective_rpc("stop_profile")
    executor.collective_rpc("start_profile", str(tmp_path))
    with pytest.raises(UtilityError, match=r"records already, for .*rank0-0\.json: call stop_profile first"):
        executor.collective_rpc("start_profile", str(tmp_path))
    executor.collective_rpc("stop_profile")


def test_a_folder_that_cannot_be_written_to_is_named_at_once(executor, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        UtilityError, match=f"cannot be written to the folder {tmp_path}/file/traces: .*Not a directory"
    ):
        executor.collective_rpc("start_profile", str(tmp_path / "file" / "traces"))
    with pytest.raises(UtilityError, match="records nothing"):
        executor.collective_rpc("stop_profile")


def test_a_trace_that_cannot_be_written_ends_the_recording(executor, tmp_path):
    executor.collective_rpc("start_profile", str(tmp_path / "gone"))
    (tmp_path / "gone" / "rank0-0.json").unlink()
    (tmp_path / "gone").rmdir()
    with pytest.raises(UtilityError, match=f"cannot be written to {tmp_path}/gone/rank0-0.json"):
        executor.collective_rpc("stop_profile")
    executor.collective_rpc("start_profile", str(tmp_path))
    executor.collective_rpc("stop_profile")


def test_shutdown_ends_a_recording_and_leaves_no_file(executor, tmp_path):
    executor.collective_rpc("start_profile", str(tmp_path))
    executor.shutdown()
    assert not list(tmp_path.iterdir())
    other = make_executor(make_source(make_hf_model(num_hidden_layers=1)))
    other.collective_rpc("start_profile", str(tmp_path))
    assert other.collective_rpc("stop_profile") == [str(tmp_path / "rank0-0.json")]
