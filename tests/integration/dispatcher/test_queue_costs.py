"""What claims, submissions and peeks cost does not grow with the runs, classes and waiters that they do not concern."""

import random

import pytest

from agent_layer.dispatcher.scripts import ClaimTerms
from agent_layer.schema import Task, new_id

from ...watching import count_commands

FEW, MANY = 6, 200
SHAPES = {
    "runs": lambda at: {"run": f"r{at}"},
    "priorities": lambda at: {"run": "r", "priority": at},
    "policies": lambda at: {"run": "r" if at < FEW else f"r{at}", "from_policy": 0},
    "runs whose agents differ": lambda at: {"run": f"r{at}", "needs": [f"agent:{at % FEW if at < FEW else at}"]},
    "group-like runs": lambda at: {"run": f"group:{at}:"},
}
CAPABILITIES = [f"agent:{at}" for at in range(FEW)]


@pytest.fixture(params=SHAPES)
def fill(request, harness):
    """``fill(range)``: two groups of four for each number, with classes that the shape names."""

    def fill(numbers):
        make = SHAPES[request.param]
        harness.queue.add([Task(id=f"{half}.{at}", group_size=4, **make(at)) for half in "ab" for at in numbers])

    return fill


def measure_costs(harness):
    """Commands of each act, when the scripts are known and the index is what claims leave behind."""
    act = {
        "claim": lambda: harness.claim(capabilities=CAPABILITIES),
        "claim 4": lambda: harness.claim(4, capabilities=CAPABILITIES),
        "peek": lambda: harness.queue.peek(4, CAPABILITIES),
        "add": lambda: harness.queue.add([Task(id=new_id(), run="r0", needs=["agent:0"])]),
        "settle": lambda: harness.end(harness.claim(capabilities=CAPABILITIES)[0], "release"),
        "resume": lambda: harness.queue.resume("r0"),
    }
    costs = {}
    for _ in range(3):  # a claim that meets many runs which may not be served looks at each of them once
        harness.end(harness.claim(capabilities=CAPABILITIES)[0], "release")
    for name, one in act.items():
        one()
        with count_commands(harness.redis, harness.queue.keys) as counts:
            one()
        costs[name] = sum(counts.values())
    return costs


def test_a_claim_a_submission_and_a_peek_cost_the_same_however_many_runs_wait(harness, fill):
    harness.redis.hset(harness.keys.policies("r"), "0", b"a version")
    fill(range(FEW))
    few = measure_costs(harness)
    fill(range(FEW, MANY))

    many = measure_costs(harness)

    assert {name: cost for name, cost in many.items() if cost > few[name] + 26} == {}


def test_a_submission_wakes_as_many_waiters_as_it_has_rollouts_and_only_those_that_can_serve_it(harness):
    scripts = harness.queue.scripts
    kinds = {"plain": [], "gpu": ["gpu"], "both": ["gpu", "net"]}
    waiters = {f"{kind} {at:02}": capable for kind, capable in kinds.items() for at in range(40)}  # by name in a tie
    for waiter, capable in waiters.items():
        scripts.claim("w", 1, capable, lease_seconds=20, run="", terms=ClaimTerms(waiter, 60))

    harness.add("net", group_size=3, needs=["net", "gpu"])
    assert sorted(woken(harness, waiters)) == ["both 00", "both 01", "both 02"]

    harness.add("any", group_size=4)
    assert len(woken(harness, waiters)) == 3 + 4


def woken(harness, waiters):
    return [waiter for waiter in waiters if harness.redis.exists(harness.keys.queue("wake", waiter))]


@pytest.mark.parametrize("seed", range(12))
def test_no_wake_up_is_lost_whatever_comes_first(harness, seed):  # noqa: C901, PLR0915  # one event a branch
    """Waiters come, sleep, are woken, die; work comes, comes back, is held back and let go."""
    chance, scripts, queue = random.Random(seed), harness.queue.scripts, harness.queue
    capable = {f"w{at}": chance.choice([[], ["gpu"], ["gpu", "net"]]) for at in range(12)}
    runs = {waiter: chance.choice(["", "", "", "r0", "r1"]) for waiter in capable}
    alive, asleep, leases = set(capable), set(), []

    def look(waiter):
        asleep.discard(waiter)
        options = {"lease_seconds": 20, "run": runs[waiter], "terms": ClaimTerms(waiter, 60, is_reaped=True)}
        found = scripts.claim(waiter, chance.choice([1, 1, 3]), capable[waiter], **options)
        leases.extend(found.leases)
        if not found.leases:
            asleep.add(waiter)

    def wake_all_with_tokens():
        while tokens := woken(harness, sorted(asleep & alive)):
            look(chance.choice(tokens))

    for number in range(60):
        match chance.choice(["add", "add", "look", "look", "release", "pause", "resume", "die"]):
            case "add":
                size, needs = chance.choice([1, 2, 5]), chance.choice([[], ["gpu"], ["net"], ["gpu", "net"]])
                queue.add([Task(id=f"t{number}", run=chance.choice(["r0", "r1", "r2"]), group_size=size, needs=needs)])
            case "look" if free := sorted(alive - asleep):
                look(chance.choice(free))
            case "release" if leases:
                harness.end(leases.pop(), "release")
            case "pause":
                queue.pause(chance.choice(["r0", "r1"]))
            case "resume":
                queue.resume(chance.choice(["r0", "r1", "r2"]))
            case "die" if len(alive) > 6:
                alive.discard(chance.choice(sorted(alive)))
            case _:
                continue
        wake_all_with_tokens()
        if woken(harness, asleep - alive):  # the others look by themselves, a second later at most
            for waiter in sorted(asleep & alive):
                look(waiter)
        left = [one for one in sorted(asleep & alive) if queue.peek(1, capable[one], run=runs[one])]
        assert left == [], f"{left} sleep while there is work for them"


def test_a_token_of_a_dead_waiter_costs_the_others_no_more_than_their_own_wait(harness):
    scripts = harness.queue.scripts
    scripts.claim("dead", 1, [], lease_seconds=20, run="", terms=ClaimTerms("dead", 0.05))
    harness.add()

    assert len(harness.claim(wait_seconds=5)) == 1


def test_runs_that_may_not_be_served_hold_up_no_other(harness):
    tasks = [Task(id=f"t{at}", run=f"r{at}") for at in range(400)]
    harness.queue.add(tasks)
    for task in tasks[:-1]:
        harness.queue.pause(task.run)

    assert harness.claimed(4) == ["t399"]

    harness.queue.resume("r7")
    harness.queue.resume("r3")
    assert harness.claimed(4) == ["t3", "t7"]


def test_runs_that_wait_for_a_policy_version_are_found_when_it_is_registered(harness, wait_until):
    harness.queue.add([Task(id=f"t{at}", run=f"r{at}", from_policy=1) for at in range(60)])
    assert harness.claim(4) == []

    harness.redis.hset(harness.keys.policies("r37"), "1", b"a version")
    assert wait_until(lambda: harness.claimed(4)) == ["t37"]


def test_a_pause_calls_all_workers_at_once_at_the_cost_of_one(harness):
    costs = []
    for num in (1, 300):
        for at in range(num):
            harness.queue.heartbeat(f"w{at}", b"{}", [])
        heard = harness.queue.listen("w0", "0-0", 0.01)
        harness.queue.resume("r")
        with count_commands(harness.redis, harness.queue.keys) as counts:
            harness.queue.pause("r", leased_too=True)
        costs.append(counts)
        called = harness.queue.listen("w0", heard, 5)
        assert heard != called == harness.queue.listen("w0", called, 0.01)

    assert costs[0] == costs[1]
