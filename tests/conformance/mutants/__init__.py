"""Components with one bug each, taken from faults that engines had. The conformance kit must catch them all.

They were written without a look at the kit's checks. Each is a good component with one method of one of its parts
changed; the class's docstring says what is wrong with it.
"""

from tests.conformance.mutants import kv_cache_managers, plans, policies, schedulers
from tests.conformance.mutants.assembly import Mutants

SCHEDULERS: Mutants = {**schedulers.MUTANTS, **plans.MUTANTS, **policies.MUTANTS}
KV_CACHE_MANAGERS: Mutants = kv_cache_managers.MUTANTS
