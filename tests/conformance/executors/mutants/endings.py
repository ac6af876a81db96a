"""Bugs in how an executor fails and ends."""

import threading
from concurrent.futures import Future

from tests.conformance.executors.mutants.base import Dying, Executor, WithWorkers
from tests.conformance.executors.mutants.books import of_step


def is_wrong(scheduled):
    return "unknown" in scheduled.num_scheduled_tokens


class TakesAWrongPlanForAnEmptyOne(Executor):
    caught_by = "a_plan_that_is_wrong_fails_its_step"

    def execute_model(self, scheduled):
        return of_step(scheduled) if is_wrong(scheduled) else self.inner.execute_model(scheduled)


class NeverAnswersAWrongPlan(Executor):
    caught_by = "a_plan_that_is_wrong_fails_its_step"
    patience = 0.2

    def execute_model(self, scheduled):
        return Future() if is_wrong(scheduled) else self.inner.execute_model(scheduled)


class FallsIllAndGoesOn(Dying):
    """`check_health` tells, but steps are taken."""

    caught_by = "after_a_failed_step_it_is_dead_or_well"

    def execute_model(self, scheduled):
        future = self.inner.execute_model(scheduled)
        future.add_done_callback(lambda done: self.fail(done.exception()) if done.exception() else None)
        return future


class ReportsAndGoesOn(Dying):
    """Callbacks are told, and `check_health` sees nothing."""

    caught_by = "after_a_failed_step_it_is_dead_or_well"

    def check_health(self):
        self.inner.check_health()


class SpoilsTheNextRequest(Executor):
    """Goes on, with something left over from the step that failed."""

    caught_by = "after_a_failed_step_it_is_dead_or_well"
    is_spoilt = False

    def plan(self, scheduled):
        self.is_spoilt |= is_wrong(scheduled)
        return scheduled

    def output(self, scheduled, output):
        if self.is_spoilt and output.request_ids:
            self.spoil(output, output.request_ids[0])
        return output


class TellsTwice(Dying):
    caught_by = "a_failure_is_told_once_and_to_late_comers_at_once"

    def fail(self, error):
        super().fail(error)
        for callback in self.callbacks:
            callback(error)


class TellsNoLateComer(Dying):
    caught_by = "a_failure_is_told_once_and_to_late_comers_at_once"

    def register_failure_callback(self, callback):
        self.callbacks.append(callback)


class TellsNobody(Dying):
    caught_by = "a_failure_is_told_once_and_to_late_comers_at_once"
    patience = 0.2

    def fail(self, error):
        self.failure = error


class TellsAgainAtTheEnd(Dying):
    caught_by = "a_failure_is_told_once_and_to_late_comers_at_once"

    def shutdown(self):
        if self.failure is not None:
            self.fail(self.failure)
        self.inner.shutdown()


class DoesNotLookAfterItsWorkers(WithWorkers):
    caught_by = "the_death_of_a_worker_is_noticed"
    patience = 0.2

    def died(self):
        pass


class LeavesTheOtherWorkers(WithWorkers):
    caught_by = "the_death_of_a_worker_is_noticed"
    patience = 0.2

    def died(self):
        self.fail(RuntimeError("a worker has died"))


class DoesNotFailThoseWhoWait(WithWorkers):
    """Steps in flight when a worker dies have no end, and nobody is told."""

    caught_by = "the_death_of_a_worker_fails_all_who_wait"
    patience = 0.2
    num_steps = 0

    def died(self):
        self.failure = RuntimeError("a worker has died")

    def execute_model(self, scheduled):
        self.num_steps += 1
        return self.inner.execute_model(scheduled) if self.num_steps == 1 else Future()


class FailsWhoIsShutDownTwice(Executor):
    caught_by = "closing_twice_does_nothing"
    is_shut_down = False

    def shutdown(self):
        if self.is_shut_down:
            raise RuntimeError("shut down already")
        self.is_shut_down = True
        self.inner.shutdown()


class CallsAShutdownAFailure(Dying):
    caught_by = "closing_twice_does_nothing"

    def shutdown(self):
        if self.failure is None:
            self.fail(RuntimeError("shut down"))
        self.inner.shutdown()


class IsWellAfterShutdown(Executor):
    caught_by = "after_shutdown_every_call_says_so"

    def check_health(self):
        pass


class LeavesAThread(Executor):
    caught_by = "nothing_is_left_after_shutdown"
    patience = 0.2

    def __init__(self, settings, context):
        super().__init__(settings, context)
        threading.Thread(target=threading.Event().wait, args=(10.0,), daemon=True).start()


class LeavesItsWorkers(WithWorkers):
    caught_by = "nothing_is_left_after_shutdown"
    patience = 0.2

    def shutdown(self):
        self.is_shut_down = True
        self.inner.shutdown()
        ending = threading.Timer(1.0, self.end)
        ending.daemon = False  # or the end of the tests would leave them for good
        ending.start()
