"""Calibration: the step costs of a real executor, measured by a designed workload and fitted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from random import Random
from statistics import fmean
from typing import NamedTuple

from enginecore.assembly import build_engine_core
from enginecore.clock import Clock
from enginecore.core import EngineCore
from enginecore.messages import EngineCoreRequest, EngineInfo
from enginecore.sampling import SamplingParams
from enginecore.settings import Loaded
from enginecore_lab.recording import RecordedStep, RecordingExecutor
from enginecore_simulation.fit import Fit, fit_costs
from enginecore_simulation.samples import StepSample

WARM_UP_WAVES = 2
LATE_EVERY = 2
"""Steps from one late request of a wave to the next."""
MOST_LATE = 8

Progress = Callable[[float], None]
"""Called with the share of the time that has passed."""


class Wave(NamedTuple):
    """Requests that come together, and some that come when those decode.

    Attributes:
        prompts: Prompt lengths.
        late: Prompt lengths of those that come later, one every `LATE_EVERY` steps.
        num_output_tokens: Output tokens of each request.
    """

    prompts: list[int]
    late: list[int]
    num_output_tokens: int


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The measurements and the fitted costs.

    Attributes:
        info: Facts and limits of the engine that ran.
        samples: Every step but those of the warm-up.
        gaps: Seconds of host work from each step's end to the start of the next, where no request had to be waited for.
        fit: Costs fitted to the samples; its gap is the mean one.
    """

    info: EngineInfo
    samples: Sequence[StepSample]
    gaps: Sequence[float]
    fit: Fit


def calibrate(
    loaded: Loaded, clock: Clock, *, seconds: float, seed: int = 0, progress: Progress = lambda share: None
) -> Calibration:
    """Run waves of requests for some time on the engine that the settings ask for, and fit what was seen.

    Raises:
        EngineCoreError: the engine cannot start, or there were too few steps.
    """
    core = build_engine_core(loaded, clock)
    try:
        samples, gaps = _measure(core, clock, seconds, seed, progress)
        fit = fit_costs(samples, gap=fmean(gaps) if gaps else 0.0, seed=seed)
        return Calibration(info=core.info, samples=samples, gaps=gaps, fit=fit)
    finally:
        core.shutdown()


def _measure(
    core: EngineCore, clock: Clock, seconds: float, seed: int, progress: Progress
) -> tuple[list[StepSample], list[float]]:
    recording = core.executor = RecordingExecutor(core.executor, clock)
    random = Random(seed)
    began: float | None = None
    samples: list[StepSample] = []
    gaps: list[float] = []
    for number, wave in enumerate(design(core.info, random)):
        recording.steps.clear()
        pauses = _run(core, recording, wave, str(number), random)
        if number < WARM_UP_WAVES:
            continue
        began = clock.now() if began is None else began
        samples += samples_of(recording.steps)
        gaps += gaps_of(recording.steps, pauses)
        passed = (clock.now() - began) / seconds
        progress(min(passed, 1.0))
        if passed >= 1:
            break
    return samples, gaps


def design(info: EngineInfo, random: Random) -> Iterator[Wave]:
    """Waves without end that cover what the engine may meet: few and many requests, short and long, alone and mixed."""
    room = int(0.8 * info.num_blocks) * info.block_size
    while True:
        size = min(_log_uniform(random, info.max_num_seqs), max(room // 32 - MOST_LATE, 1))
        num_late = min(random.choice((0, MOST_LATE)), info.max_num_seqs - size)
        size += num_late
        num_output_tokens = random.randint(6, 18)
        longest = max(min(info.max_model_len - num_output_tokens, room // size - num_output_tokens), 1)
        usual = _log_uniform(random, max(min(room, 4 * info.max_num_batched_tokens) // size, 1))
        lengths = [min(random.randint(1, 2 * usual), longest) for _ in range(size)]
        yield Wave(lengths[num_late:], lengths[:num_late], num_output_tokens)


def samples_of(steps: Sequence[RecordedStep]) -> list[StepSample]:
    """Seconds of each step: from its submission, or from the end of the one before it, if that was
    later.
    """
    samples = []
    free_from = 0.0
    for step in steps:
        if step.ended is None:
            continue
        if step.features.num_tokens:
            samples.append(StepSample(step.features, step.ended - max(step.submitted, free_from)))
        free_from = step.ended
    return samples


def gaps_of(steps: Sequence[RecordedStep], pauses: Sequence[int]) -> list[float]:
    """Seconds from each step's end to the submission of the next, 0 if that came earlier.

    Args:
        steps: In order.
        pauses: Indices of steps before which something else was done.
    """
    excluded = set(pauses)
    return [
        max(after.submitted - before.ended, 0.0)
        for index, (before, after) in enumerate(pairwise(steps), 1)
        if before.ended is not None and after.features.num_tokens and index not in excluded
    ]


def _log_uniform(random: Random, most: int) -> int:
    """Between 1 and `most`, each order of magnitude as likely as any other."""
    return min(round(exp(random.uniform(0.0, log(most)))), most)


def _run(core: EngineCore, recording: RecordingExecutor, wave: Wave, name: str, random: Random) -> list[int]:
    """Run a wave to its end; returns the indices of the steps before which late requests were added."""
    _add_requests(core, wave.prompts, name, wave.num_output_tokens, random)
    late, pauses, rounds = list(wave.late), [], 0
    while core.has_requests():
        rounds += 1
        if late and rounds % LATE_EVERY == 0:
            pauses.append(len(recording.steps))
            _add_requests(core, [late.pop()], f"{name}-{rounds}", wave.num_output_tokens, random)
        core.advance()
    return pauses


def _add_requests(
    core: EngineCore, lengths: Sequence[int], prefix: str, num_output_tokens: int, random: Random
) -> None:
    """Add requests that share nothing, so that every prompt token is computed."""
    params = SamplingParams(temperature=0, max_tokens=num_output_tokens, ignore_eos=True)
    for index, length in enumerate(lengths):
        tokens = random.choices(range(core.info.vocab_size), k=length)
        core.add_request(EngineCoreRequest(request_id=f"{prefix}.{index}", prompt_token_ids=tokens, params=params))
