"""Checks: a request's tokens depend on its own tokens and parameters, and on nothing else."""

from enginecore_conformance.checks import check
from enginecore_conformance.executors.bench import ExecutorBench
from enginecore_conformance.executors.lending import BLOCK_SIZE, NUM_BLOCKS
from enginecore_conformance.executors.planner import GREEDY, PROBED, SUPPLY

COUNT = 10
"""Tokens of each request."""


@check("executor", "content")
def greedy_tokens_repeat(bench: ExecutorBench) -> None:
    """The same prompt gives the same greedy tokens, now and later, in blocks that others have used
    since.
    """
    prompt = bench.prompt("repeat", 21)
    for number in range(3):
        again = bench.add_request(prompt)
        bench.generate(again, COUNT)
        bench.expect_as_alone(again, f"run {number + 2} of the same prompt", COUNT)
        bench.planner.finish(again)
        between = bench.add_request(bench.prompt(number, 30))
        bench.generate(between, 2)
        bench.planner.finish(between)


@check("executor", "content")
def company_changes_nothing(bench: ExecutorBench) -> None:
    """Tokens are the same whatever other requests are in the batch, join it or leave it, in
    whatever order.
    """
    requests = [
        bench.add_request(bench.prompt(("company", length), length), PROBED if length % 2 else GREEDY)
        for length in (1, 8, 17, 26, 33, 5, 9)
    ]
    early, late = requests[:4], requests[4:]
    bench.step(early)  # prompts of different lengths
    bench.step(early[::-1])
    bench.step([early[2], late[0], early[0], *late[1:], early[3], early[1]])  # prompts among decodes
    bench.step(early[:1] + late)
    leaving = early.pop(0)
    bench.planner.finish(leaving)
    bench.generate_all(late + early, COUNT)
    for number, request in enumerate(requests):
        bench.expect_as_alone(request, f"request {number} of seven", min(len(request.output), COUNT))


@check("executor", "content")
def chunks_change_nothing(bench: ExecutorBench) -> None:
    """A prompt gives the same tokens in one piece or in several, of any length, beside others or
    not.
    """
    prompt = bench.prompt("chunks", 29)
    for chunk in (1, 3, BLOCK_SIZE, BLOCK_SIZE + 1, 28):
        request = bench.add_request(prompt, PROBED)
        bench.generate(request, COUNT, chunk)
        bench.expect_as_alone(request, f"a prompt of 29 tokens in pieces of {chunk}")
        bench.planner.finish(request)
    other, request = bench.add_request(bench.prompt("other", 4)), bench.add_request(prompt, PROBED)
    for count in (7, 15, 7):
        bench.step({other: other.left, request: count})
    bench.generate(request, COUNT)
    bench.expect_as_alone(request, "a prompt of 29 tokens in pieces of 7, 15 and 7 beside a decode")


@check("executor", "content")
def names_of_blocks_change_nothing(bench: ExecutorBench) -> None:
    """Tokens are the same in whatever blocks: the first or the last, in any order, near or far."""
    prompt = bench.prompt("names", 27)
    orders = {
        "falling": range(SUPPLY - 1, -1, -1),
        "the last of the pool": range(NUM_BLOCKS - SUPPLY, NUM_BLOCKS),
        "far apart": range(5, NUM_BLOCKS, NUM_BLOCKS // SUPPLY),
        "mixed": (40, 3, 63, 0, 17, 41, 2, 31),
    }
    for name, blocks in orders.items():
        request = bench.add_request(prompt, PROBED, blocks=blocks)
        bench.generate(request, COUNT)
        bench.expect_as_alone(request, f"in blocks {list(blocks)} ({name})")
        bench.planner.finish(request)


@check("executor", "content")
def a_request_writes_to_its_own_slots_only(bench: ExecutorBench) -> None:
    """A request that computes prompts, chunks and decodes leaves the slots of others as they
    are: those of the blocks before and after its own, the first and the last of the pool, and those
    of requests that pause.
    """
    last = NUM_BLOCKS - 1
    resting = bench.add_request(bench.prompt("own", 26), PROBED, blocks=(0, 2, 4, last - 1, last))
    bench.generate(resting, 2)
    for chunk in (None, 3, 1):  # over and over in the same blocks
        busy = bench.add_request(bench.prompt("foreign", 19), PROBED, blocks=(1, 3, 5, last - 3, last - 2))
        bench.generate(busy, COUNT, chunk)
        bench.expect_as_alone(busy, "beside a request that pauses")
        bench.planner.finish(busy)
    bench.generate(resting, COUNT)
    bench.expect_as_alone(resting, "after others had computed in the blocks around its own")


@check("executor", "content")
def a_computed_prefix_may_be_shared(bench: ExecutorBench) -> None:
    """A request that begins with blocks that another one has computed gives the tokens that it
    gives without, while the other runs on, and after it has ended.
    """
    start = bench.prompt("start", 3 * BLOCK_SIZE)
    owner = bench.add_request(start + bench.prompt("owner", 5), PROBED)
    bench.generate(owner, 2)
    prompt = start + bench.prompt("guest", 7)
    for num_blocks in (1, 3):
        guest = bench.add_request(prompt, PROBED, computed=owner, num_computed=num_blocks * BLOCK_SIZE)
        bench.step([guest])
        bench.step([owner, guest])
        bench.step([guest, owner])
        bench.expect_as_alone(guest, f"with {num_blocks} blocks of another request")
        bench.planner.finish(guest)
    bench.expect_as_alone(owner, "while others used its blocks")
    guest = bench.add_request(prompt, PROBED, computed=owner, num_computed=3 * BLOCK_SIZE)
    bench.planner.finish(owner)
    bench.generate(guest, COUNT)
    bench.expect_as_alone(guest, "with blocks of a request that has ended")


@check("executor", "content")
def a_preempted_request_goes_on_where_it_stood(bench: ExecutorBench) -> None:
    """A request that is preempted, and comes back as new with all of its tokens and other blocks,
    goes on with the tokens that it would have had; so it does after a second time, and in the
    middle of its prompt.
    """
    request, other = (
        bench.add_request(bench.prompt("preempted", 20), PROBED),
        bench.add_request(bench.prompt("thief", 12)),
    )
    bench.step({request: 11})
    bench.planner.preempt(request, range(50, 58))
    bench.step([other])
    bench.generate(request, 3)
    bench.planner.preempt(request, range(20, 28))
    bench.step([other, request])  # gone and back in one plan
    bench.generate(request, 6)
    bench.planner.preempt(request)
    bench.step([other])
    bench.generate(request, COUNT)
    bench.expect_as_alone(request, "preempted three times")


@check("executor", "content", "in_order")
def blocks_may_be_given_away_at_once(bench: ExecutorBench) -> None:
    """The plan that says that a request has ended, or was preempted, may give its blocks to
    another.
    """
    prompts = [bench.prompt(("heir", number), 22) for number in range(3)]
    blocks = range(8, 8 + SUPPLY)
    first = bench.add_request(prompts[0], PROBED, blocks=blocks)
    bench.generate(first, 4)
    bench.planner.preempt(first, range(32, 32 + SUPPLY))
    second = bench.add_request(prompts[1], PROBED, blocks=blocks)
    bench.step([second, first])
    bench.generate_all([first, second], COUNT)
    bench.planner.finish(second)
    third = bench.add_request(prompts[2], PROBED, blocks=reversed(blocks))
    bench.generate(third, COUNT)
    for number, request in enumerate((first, second, third)):
        bench.expect_as_alone(request, f"request {number} of three that had the same blocks")
