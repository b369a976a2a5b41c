"""Where two trajectories part, as the API tells it, against the ids that the store returns."""

import random
from itertools import combinations_with_replacement

from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import PromptDelta
from agent_layer.view import RequestParams
from agent_layer.view.reads.tokens.diff import show_diff

from ...builders import attempt, call, sampled
from ...stored import write_segment


def test_two_rollouts_part_where_their_ids_do(fresh):
    for seed in range(3):
        dice, names = random.Random(seed), [f"d{seed}.{at}-0" for at in range(4)]
        write_segment(fresh.store, *(one for name in names for one in attempt(name, *_calls(dice, name))))
        laid = {name: [_added(step) for step in fresh.store.get(name).steps] for name in names}

        for a, b in combinations_with_replacement(names, 2):
            answer = show_diff(fresh.source, RequestParams({}, {"a": [a], "b": [b]}))
            flat_a, flat_b = ([one for step in laid[name] for one in step] for name in (a, b))
            num_shared = next((at for at in range(len(flat_a)) if flat_a[: at + 1] != flat_b[: at + 1]), len(flat_a))
            assert answer.first_token == (None if flat_a == flat_b else num_shared)
            num_steps = max(len(laid[a]), len(laid[b]))
            parted = next((at for at in range(num_steps) if laid[a][at : at + 1] != laid[b][at : at + 1]), None)
            assert answer.first_step == parted
            assert len(answer.steps) == num_steps
            assert (answer.num_tokens_a, answer.num_tokens_b) == (len(flat_a), len(flat_b))


def test_it_says_whether_prompt_or_answer_differs(fresh):
    for name, given, message in (("x-0", 1, 2), ("y-0", 1, 3), ("z-0", 4, 2)):
        prompt = PromptDelta(delta=TokenIds([given]))
        write_segment(
            fresh.store, *attempt(name, *call(name, "a", sampled(message), prompt=prompt, capture_level="tokens"))
        )

    assert fresh.get("/api/v1/diff?a=x-0&b=y-0")["steps"][0]["part"] == "answer"
    assert fresh.get("/api/v1/diff?a=x-0&b=z-0")["steps"][0]["part"] == "prompt"
    assert fresh.get("/api/v1/diff?a=x-0&b=y-0")["steps"][0]["at_token"] == 1
    fresh.get("/api/v1/diff?a=x-0", 400)
    fresh.get("/api/v1/diff?a=x-0&b=none-0", 404)


def _added(step):
    return [*(step.prompt.delta if step.prompt else ()), *step.action.response_token_ids]


def _calls(dice, name):
    """Return a chain of calls over two ids, so that pairs often share a beginning."""
    size, parts = 0, []
    for at in range(dice.randrange(1, 4)):
        given, command = ([dice.choice([1, 1, 1, 2]) for _ in range(2)] for _ in range(2))
        after = {"parent_call": f"{name}/c{at - 1}", "prefix_length": size, "prefix_hash": "not read"} if at else {}
        prompt = PromptDelta(delta=TokenIds(given), **after)
        parts += call(name, f"c{at}", sampled(*command), at=2.0 + at, prompt=prompt, capture_level="tokens")
        size += 4
    return parts
