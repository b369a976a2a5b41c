"""The tree of prefixes of a trajectory, against trees that a seed generates."""

import random
from collections import Counter

import pytest

from agent_layer.schema import assemble_trajectory
from agent_layer.schema.record import TokenIds
from agent_layer.schema.rollout import Resumed
from agent_layer.schema.step import PromptDelta
from agent_layer.view.reads.tokens.forks import lay_out_forks

from ...builders import attempt, call, sampled

_CAUSES = ["edited", "truncated history"]


@pytest.mark.parametrize("seed", range(6))
def test_the_tree_is_that_of_the_prompts(seed):
    """The parent of a step is the one whose tokens its prompt repeats most. No id is used twice."""
    whole = _grow("tree-0", random.Random(seed))
    lines = [[*step.prompt_token_ids, *step.action.response_token_ids] for step in whole.steps]
    parents = [_parent(lines, step.prompt_token_ids) for step in whole.steps]
    leaves = sorted(set(range(len(lines))) - set(parents))

    answer = lay_out_forks(whole)

    assert [node.parent if node.link == "tokens" else None for node in answer.nodes] == parents
    assert answer.rows == [_path(parents, leaf) for leaf in leaves]
    assert answer.num_tokens == len({one for line in lines for one in line})
    broken = [step for step in whole.steps if step.findings]
    assert answer.causes == Counter(step.findings[0].partition(":")[2] for step in broken)
    assert answer.num_given_again == sum(len(step.prompt_token_ids) for step in broken)
    assert [node.prefix_length for node in answer.nodes] == [
        0 if parent is None else len(lines[parent]) for parent in parents
    ]


def test_what_was_given_up_and_sub_agents_are_told():
    name = "t-0"
    own = {"agent": "solver", "capture_level": "tokens"}
    helper = {"agent": "helper", "agent_path": ["solver", "helper"], "parent_call": f"{name}/a"}
    records = attempt(
        name,
        *call(name, "a", sampled(2), at=2.0, prompt=PromptDelta(delta=TokenIds([1])), **own),
        *call(name, "b", sampled(4), at=3.0, prompt=_after(name, "a", 2), **own),
        *call(name, "c", sampled(6), at=4.0, prompt=_after(name, "a", 2), **own),
        *call(name, "d", sampled(8), at=5.0, prompt=_after(name, "c", 4), **own),
        *call(name, "e", sampled(9), at=6.0, prompt=PromptDelta(delta=TokenIds([9])), **own | helper),
        Resumed(trajectory_id=name, run="r", at=7.0, worker="w", abandoned=[f"{name}/d"]),
    )

    nodes = lay_out_forks(assemble_trajectory(name, records)).nodes

    assert [node.is_abandoned for node in nodes] == [False, True, False, True, False]
    assert [node.is_subagent for node in nodes] == [False, False, False, False, True]
    assert (nodes[4].parent, nodes[4].link) == (0, "call")


def _after(name, parent, size):
    return PromptDelta(delta=TokenIds([7]), parent_call=f"{name}/{parent}", prefix_length=size, prefix_hash="not read")


def _grow(name, dice):
    """Return an attempt whose calls continue an earlier one, or break off; each id is fresh."""
    ids, parts, sizes = iter(range(1, 10_000)), [], []

    def fresh():
        return TokenIds([next(ids) for _ in range(dice.randrange(1, 5))])

    for number in range(dice.randrange(2, 15)):
        given, answer = fresh(), fresh()
        parent = dice.choice([None, *range(number), number - 1]) if number else None
        before = sizes[parent] if parent is not None else 0
        prompt = PromptDelta(delta=given)
        if parent is not None:
            prompt = PromptDelta(
                delta=given, parent_call=f"{name}/c{parent}", prefix_length=before, prefix_hash="not read"
            )
        findings = [f"prefix_break:{dice.choice(_CAUSES)}"] if number and parent is None else []
        own = {"capture_level": "tokens", "findings": findings}
        parts += call(name, f"c{number}", sampled(*answer), at=2.0 + number, prompt=prompt, **own)
        sizes.append(before + len(given) + len(answer))
    return assemble_trajectory(name, attempt(name, *parts))


def _parent(lines, prompt):
    """Return the step with the longest line of tokens that begins the prompt."""
    found = [at for at, line in enumerate(lines) if list(prompt[: len(line)]) == line]
    return max(found, key=lambda at: len(lines[at]), default=None)


def _path(parents, leaf):
    return ([] if parents[leaf] is None else _path(parents, parents[leaf])) + [leaf]
