"""Bugs in steps that are sampled when they are asked to be."""

import msgspec

from tests.conformance.executors.mutants.base import Executor

WAITING = {"feeds_tokens": False}


class SamplesTheNextStep(Executor):
    """What a deferred step left behind is overwritten by its own next forward pass."""

    caught_by = "deferred_steps_mix_with_others"
    oracle = WAITING

    def execute_model(self, scheduled):
        for forwarded in self.inner._unsampled.values():
            for at, (request_id, row, checksum) in enumerate(forwarded.unsampled):
                forwarded.unsampled[at] = type(forwarded.unsampled[at])(request_id, row, checksum + 1)
        return super().execute_model(scheduled)


class SamplesApartByOtherParameters(Executor):
    """Logits that are kept are sampled greedily."""

    caught_by = "deferred_steps_are_sampled_when_asked"

    def sample_tokens(self, step, grammar):
        for _, row, _ in self.inner._unsampled[step].unsampled:
            row.params = msgspec.structs.replace(row.params, temperature=0.0)
        return self.inner.sample_tokens(step, grammar)


class DefersWhatHasNoTokens(Executor):
    caught_by = "plans_without_tokens_are_answered_at_once"

    def output(self, scheduled, output):
        return None if scheduled.defer_sampling else output


class ReadsSlotsWhenItSamples(Executor):
    """Nothing is kept from the forward pass: by then the blocks may hold the KV of another request."""

    caught_by = "what_is_gone_is_sampled_all_the_same"
    oracle = WAITING

    def sample_tokens(self, step, grammar):
        unsampled = self.inner._unsampled[step].unsampled
        for at, (request_id, row, _) in enumerate(unsampled):
            unsampled[at] = type(unsampled[at])(request_id, row, self.inner._worker._checksum(request_id, row))
        return self.inner.sample_tokens(step, grammar)


class DropsWhatIsGone(Executor):
    """Requests that ended since are not sampled."""

    caught_by = "what_is_gone_is_sampled_all_the_same"
    oracle = WAITING

    def sample_tokens(self, step, grammar):
        unsampled = self.inner._unsampled[step].unsampled
        unsampled[:] = [each for each in unsampled if self.rows.get(each.request_id) is each.row]
        return self.inner.sample_tokens(step, grammar)


class FindsRowsById(Executor):
    """Looks up at sampling who has the id by then."""

    caught_by = "an_id_may_be_taken_again_before_it_is_sampled"
    oracle = WAITING

    def sample_tokens(self, step, grammar):
        unsampled = self.inner._unsampled[step].unsampled
        for at, (request_id, row, checksum) in enumerate(unsampled):
            unsampled[at] = type(unsampled[at])(request_id, self.rows.get(request_id, row), checksum)
        return self.inner.sample_tokens(step, grammar)
