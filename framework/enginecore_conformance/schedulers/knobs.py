"""Checks of a component's own settings, one each: another value changes the plans."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from enginecore.errors import EngineCoreError
from enginecore.plugin import Component
from enginecore_conformance.checks import Bench, Check, Violation
from enginecore_conformance.kits import Kit, MakeBench
from enginecore_conformance.parts import Parts
from enginecore_conformance.schedulers.bench import SchedulerBench
from enginecore_conformance.schedulers.traffic import busy_moves
from enginecore_conformance.subject import Subject
from enginecore_conformance.trace import Trace

NUMBERS = (1, 2, 4, 0, 8, 100, 1000)
FRACTIONS = (0.0, 0.1, 1.0, 3.0, 30.0, 1000.0)
TENANTS = ("a", "b")
PLAIN: Mapping[Any, tuple[Any, ...]] = {
    bool: (True, False), int: NUMBERS, float: FRACTIONS, str: TENANTS, type(None): (None,)
}  # fmt: skip
"""Values that are tried. Texts, also as keys, are tenants of the requests."""
MOST_COMBINATIONS = 12
"""Of a value with one of another setting, where it changes nothing by itself."""

Signature = tuple[Any, ...]


def kit_with_knobs(checks: tuple[Check[Any], ...], make_bench: Callable[[Subject], Bench]) -> Kit:
    """A kit of these checks, with one more for each setting of a component's own.

    Args:
        checks: Checks of the kind. All checks of a subject share one bench.
        make_bench: Makes the bench of `checks`. Checks of settings need a `SchedulerBench`.
    """

    def benches(subject: Subject) -> MakeBench:
        bench = make_bench(subject)

        def bench_for(check: Check[Any]) -> Bench:
            return bench if check in checks or isinstance(bench, SchedulerBench) else SchedulerBench(subject)

        return bench_for

    return Kit(checks_for=lambda component: (*checks, *knob_checks(component)), benches=benches)


def knob_checks(component: Component) -> tuple[Check[SchedulerBench], ...]:
    """One check for each setting of the component's own."""
    return tuple(_knob_check(component, name) for name in component.settings.model_fields)


def _knob_check(component: Component, name: str) -> Check[SchedulerBench]:
    rule = (
        f"The setting {name!r} does something: there is traffic on which another value gives other plans. Values are "
        "tried by type, those in the field's examples first."
    )
    return Check(
        f"setting_{name}_is_honoured", component.kind, frozenset(), rule, lambda bench: _require_effect(bench, name)
    )


def _require_effect(bench: SchedulerBench, name: str) -> None:
    subject = bench.subject
    base = subject.loaded.settings.component(subject.component.kind).settings
    tried = []
    trials = _Trials(bench)
    for value in _values_of(base, name):
        tried.append(value)
        if trials.differ({}, {name: value}):
            return
    if not tried:
        raise Violation(
            f"no value of {name!r} but {getattr(base, name)!r} is known", "its field names some: Field(examples=[...])"
        )
    others = [other for other in type(base).model_fields if other != name]
    beside = ({other: value} for other in others for value in _values_of(base, other))
    pairs = itertools.islice(itertools.product(beside, tried), MOST_COMBINATIONS)
    if not any(trials.differ(other, {**other, name: value}) for other, value in pairs):
        raise Violation(
            f"with {name} = {', '.join(map(repr, tried))} all plans are those of {getattr(base, name)!r}",
            "some value changes a plan, or the field names one that does: Field(examples=[...])",
        )


class _Trials:
    """Runs the same traffic with one value and with another."""

    def __init__(self, bench: SchedulerBench) -> None:
        self._bench = bench
        self._known: dict[tuple[str, int], Signature | None] = {}
        crowd = {"num_blocks": 60, "max_num_seqs": 2, "max_num_batched_tokens": 24, "max_model_len": 64}
        tight = {"num_blocks": 11, "max_num_seqs": 4, "max_num_batched_tokens": 16, "max_model_len": 48}
        self._traces = [
            Trace({**tight, "step_time": 1.0}, busy_moves(1, 14)),
            Trace({**crowd, "step_time": 1.0}, busy_moves(2, 24)),
            Trace({**tight, "step_time": 0.1}, busy_moves(3, 14)),
            Trace({**crowd, "step_time": 8.0}, busy_moves(4, 14)),
        ]

    def differ(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Whether any traffic shows a difference between these settings."""
        for number in range(len(self._traces)):
            first, second = self._signature(one, number), self._signature(other, number)
            if first is not None and second is not None and first != second:
                return True
        return False

    def _signature(self, changes: Mapping[str, Any], number: int) -> Signature | None:
        key = (repr(sorted(changes.items())), number)
        if key not in self._known:
            self._known[key] = self._run(changes, self._traces[number])
        return self._known[key]

    def _run(self, changes: Mapping[str, Any], trace: Trace) -> Signature | None:
        """Plans and outputs of a run; None for settings that do not go with these limits."""
        subject = self._bench.subject
        table = f"{subject.kind.table}.{subject.component.name}"
        try:
            loaded = (
                subject.load({table: {**(subject.options.settings or {}), **changes}}) if changes else subject.loaded
            )
            run = self._bench.start(Parts(loaded), **trace.conditions)
        except EngineCoreError:
            return None
        for move in trace.moves:
            getattr(run, move.method)(*move.args, **move.kwargs)
        run.finish()
        ends = [(story.request.request_id, story.finish_reason) for story in run.harness.transcript.stories]
        return run.harness.plans, ends, run.harness.clock.now()


# -- values ----------------------------------------------------------------------------------------------------


def _values_of(base: BaseModel, name: str) -> Sequence[Any]:
    """Values that the model takes, other than the one in force."""
    field = type(base).model_fields[name]
    values = []
    for value in (*(field.examples or ()), *_values(field.annotation)):
        if value != getattr(base, name) and value not in values and _is_taken(base, name, value):
            values.append(value)
    return values


def _is_taken(base: BaseModel, name: str, value: Any) -> bool:
    try:
        type(base).model_validate({**base.model_dump(), name: value})
    except ValidationError:
        return False
    return True


def _values(annotation: Any) -> Iterator[Any]:
    """Some values of a type; not all need satisfy its constraints."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in PLAIN:
        yield from PLAIN[annotation]
    elif origin is Literal:
        yield from arguments
    elif origin in (dict, Mapping):
        yield from _mappings(arguments)
    elif origin in (list, tuple, set, frozenset, Sequence, Iterable):
        yield from ([value] for value in _values(arguments[0]))
    else:  # a union, or something annotated
        for argument in arguments:
            if not isinstance(argument, FieldInfo):
                yield from _values(argument)


def _mappings(arguments: tuple[Any, ...]) -> Iterator[dict[Any, Any]]:
    keys, values = arguments or (str, float)
    for key, value in itertools.product(_values(keys), _values(values)):
        yield {key: value}
