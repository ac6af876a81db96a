"""Records what a worker does, as a Chrome trace: open it in chrome://tracing or ui.perfetto.dev."""

import itertools
import os
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from enginecore.errors import UtilityError


class Profiler:
    """One rank's, on the thread that runs its steps."""

    def __init__(self, rank: int, device: torch.device) -> None:
        self._rank = rank
        self._activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            self._activities.append(ProfilerActivity.CUDA)
        self._recording: tuple[profile, Path] | None = None

    def start(self, folder: str) -> None:
        """Begin to record.

        Raises:
            UtilityError: it records already, or cannot write to `folder`.
        """
        if self._recording is not None:
            raise UtilityError(f"rank {self._rank} records already, for {self._recording[1]}: call stop_profile first")
        path = self._new_file(Path(folder).absolute())
        recorder = profile(activities=self._activities)
        try:
            recorder.start()
        except BaseException:
            path.unlink()
            raise
        self._recording = recorder, path

    def stop(self) -> str:
        """Write what was recorded; the path of the file.

        Raises:
            UtilityError: nothing is recorded, or the file cannot be written.
        """
        if self._recording is None:
            raise UtilityError(f"rank {self._rank} records nothing: call start_profile first")
        (recorder, path), self._recording = self._recording, None
        recorder.stop()
        try:
            recorder.export_chrome_trace(str(path))
            with path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                whole = file.read() == b"}"
        except (OSError, RuntimeError) as error:
            raise UtilityError(f"the trace of rank {self._rank} cannot be written to {path}: {error}") from error
        if not whole:  # the profiler itself does not mind
            raise UtilityError(f"the trace of rank {self._rank} was cut short in {path}: is the disk full?")
        return str(path)

    def close(self) -> None:
        """Forget what was recorded."""
        if self._recording is not None:
            (recorder, path), self._recording = self._recording, None
            recorder.stop()
            path.unlink(missing_ok=True)

    def _new_file(self, folder: Path) -> Path:
        """Made now: that it cannot be written must not be found out when all is recorded."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for number in itertools.count():
                path = folder / f"rank{self._rank}-{number}.json"
                if not path.exists():
                    path.open("x").close()
                    return path
        except OSError as error:
            raise UtilityError(
                f"traces of rank {self._rank} cannot be written to the folder {folder}: {error}"
            ) from error
        raise AssertionError("numbers do not end")
