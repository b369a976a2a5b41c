"""Rows of the datasets: answers to imitate, pairs to prefer, single steps. Token ids are those of the store.

Columns that have one number for each token are as long as the ids beside them. A log-probability is the engine's at
sampling, 0.0 where the policy did not sample the token; a version is -1 there.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import product
from typing import Final

import msgspec
import pyarrow as pa

from agent_layer.schema import JsonObject, TrainingSample, Trajectory, resolve
from agent_layer.store import step_rewards
from trainer_adapter.data import exclude
from trainer_adapter.datasets.selection import Account, SelectionRule, UsableRollout, pick_best

_EQUAL: Final = 1e-12
"""Part of two rewards by which their difference may be off, as they are sums of floats."""
_IDS, _MASK = pa.list_(pa.int32()), pa.list_(pa.int8())
_LOGPROBS, _VERSIONS = pa.list_(pa.float32()), pa.list_(pa.int32())
_TASK = {"run": pa.string(), "task_id": pa.string(), "task_type": pa.string(), "group_id": pa.string()}

SCHEMAS: Final[dict[str, pa.Schema]] = {
    "sft": pa.schema(
        {
            **_TASK,
            "trajectory_id": pa.string(),
            "row": pa.int32(),
            "num_rows": pa.int32(),
            "agent": pa.string(),
            "reward": pa.float64(),
            "input_ids": _IDS,
            "assistant_masks": _MASK,
            "logprobs": _LOGPROBS,
            "versions": _VERSIONS,
            "messages": pa.string(),
            "tools": pa.string(),
        }
    ),
    "pairs": pa.schema(
        {
            **_TASK,
            "agent": pa.string(),
            "margin": pa.float64(),
            "prompt_ids": _IDS,
            **{
                f"{side}_{name}": kind
                for side in ("chosen", "rejected")
                for name, kind in {
                    "trajectory_id": pa.string(),
                    "reward": pa.float64(),
                    "ids": _IDS,
                    "mask": _MASK,
                    "logprobs": _LOGPROBS,
                    "versions": _VERSIONS,
                }.items()
            },
        }
    ),
    "steps": pa.schema(
        {
            **_TASK,
            "trajectory_id": pa.string(),
            "step": pa.int32(),
            "choice": pa.int32(),
            "num_steps": pa.int32(),
            "agent": pa.string(),
            "step_reward": pa.float64(),
            "rollout_reward": pa.float64(),
            "prompt_ids": _IDS,
            "response_ids": _IDS,
            "logprobs": _LOGPROBS,
            "versions": _VERSIONS,
            "temperature": pa.float64(),
            "finish_reason": pa.string(),
            "message": pa.string(),
        }
    ),
}
"""Columns by kind of dataset."""


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows to make."""

    kinds: list[str]
    """Among ``SCHEMAS``."""
    best_of: int | None = None
    """Most rollouts of a group to imitate, those with the highest rewards; None: all."""
    margin: float = 0.0
    """Least difference of the rewards of a pair."""
    per_group: int = 1
    """Most pairs of a group."""
    mixed_versions: bool = False
    """See ``SelectionRule``."""

    @property
    def rule(self) -> SelectionRule:
        """What a trajectory must have."""
        needs_reward = "pairs" in self.kinds or self.best_of is not None
        return SelectionRule(needs_reward=needs_reward, mixed_versions=self.mixed_versions)


def make_rows(plan: RowPlan, rollouts: Sequence[UsableRollout], account: Account) -> Iterator[tuple[str, JsonObject]]:
    """Yield (kind, row) of the usable rollouts of one group."""
    for kind in plan.kinds:
        if kind == "pairs":
            yield from ((kind, row) for row in pair_rows(rollouts, plan.margin, plan.per_group, account))
            continue
        make, best_of = (sft_rows, plan.best_of) if kind == "sft" else (step_rows, None)
        for rollout in pick_best(rollouts, best_of, account):
            account.count_used(rollout)
            yield from ((kind, row) for row in make(rollout))


def sft_rows(rollout: UsableRollout) -> Iterator[JsonObject]:
    """Yield one row for each sample of a rollout: more than one where it forked or changed its agent.

    ``reward`` is the rollout's in each of them; ``row`` and ``num_rows`` say how often it stands.
    """
    for position, sample in enumerate(rollout.samples):
        num_prompt = len(sample.prompt_ids)
        yield {
            **_describe_task(sample),
            "trajectory_id": sample.trajectory_id,
            "row": position,
            "num_rows": len(rollout.samples),
            "agent": sample.agent,
            "reward": rollout.reward,
            "input_ids": [*sample.prompt_ids, *sample.response_ids],
            "assistant_masks": [*[0] * num_prompt, *sample.loss_mask],
            "logprobs": [*[0.0] * num_prompt, *sample.logprobs],
            "versions": [*[-1] * num_prompt, *sample.versions],
            **_write_messages(rollout.trajectory, sample),
        }


def pair_rows(
    rollouts: Sequence[UsableRollout], min_margin: float, per_group: int, account: Account
) -> Iterator[JsonObject]:
    """Yield pairs of a group whose rewards differ, by ``min_margin`` or more, the widest first.

    Rewards are sums of floats: those that are equal to 12 digits are equal, and so are such margins.

    Both answer the same prompt ids. A rollout with several rows has no single answer, so it is in no pair.

    Args:
        rollouts: of one group, each with a reward.
        min_margin: least difference.
        per_group: most pairs.
        account: counts rollouts that are in a pair, or in none.
    """
    single = [one for one in rollouts if len(one.samples) == 1]
    for one in rollouts:
        if len(one.samples) > 1:
            reason = "it forked or has several agents, so its tokens are no single answer to compare"
            account.refuse(exclude(one.trajectory, "several_rows", reason))
    by_prompt: defaultdict[bytes, list[tuple[float, TrainingSample]]] = defaultdict(list)
    for one in single:
        (sample,) = one.samples
        by_prompt[sample.prompt_ids.tobytes()].append((one.reward or 0.0, sample))
    found = (
        (margin, good, bad)
        for same in by_prompt.values()
        for (high, good), (low, bad) in product(
            nsmallest(per_group, same, key=lambda one: (-one[0], one[1].sample_id)),
            nsmallest(per_group, same, key=lambda one: (one[0], one[1].sample_id)),
        )
        if (margin := high - low) > (rounding := _EQUAL * max(abs(high), abs(low))) and margin >= min_margin - rounding
    )
    chosen = nsmallest(per_group, found, key=lambda one: (-one[0], one[1].sample_id, one[2].sample_id))
    used = {sample.trajectory_id for _, *sides in chosen for sample in sides}
    for one in single:
        if one.trajectory.trajectory_id in used:
            account.count_used(one)
        else:
            account.refuse(
                exclude(
                    one.trajectory, "no_pair", "equal rewards, another prompt, or enough pairs of its group without it"
                )
            )
    for margin, good, bad in chosen:
        yield {
            **_describe_task(good),
            "agent": good.agent,
            "margin": margin,
            "prompt_ids": list(good.prompt_ids),
            **_write_side("chosen", good),
            **_write_side("rejected", bad),
        }


def step_rows(rollout: UsableRollout) -> Iterator[JsonObject]:
    """Yield one row for each step whose tokens are trained: prompt, answer, and the rewards of step and rollout."""
    trained = {(ref.call_id, ref.choice): sample for sample in rollout.samples for ref in sample.steps}
    rewards = step_rewards(rollout.trajectory.rewards)
    for step in rollout.trajectory.steps:
        if (sample := trained.get((step.call_id, step.choice))) is None:
            continue
        action = step.action
        yield {
            **_describe_task(sample),
            "trajectory_id": sample.trajectory_id,
            "step": step.index,
            "choice": step.choice,
            "num_steps": len(rollout.trajectory.steps),
            "agent": step.agent,
            "step_reward": rewards.get(step.index),
            "rollout_reward": rollout.reward,
            "prompt_ids": list(step.prompt_token_ids or ()),
            "response_ids": list(action.response_token_ids or ()),
            "logprobs": list(action.logprobs or ()),
            "versions": [version for version, size in action.policy_versions or () for _ in range(size)],
            "temperature": step.temperature,
            "finish_reason": action.finish_reason,
            "message": _write_json(action.message),
        }


def _describe_task(sample: TrainingSample) -> JsonObject:
    return {name: getattr(sample, name) for name in _TASK}


def _write_side(side: str, sample: TrainingSample) -> JsonObject:
    values: JsonObject = {
        "trajectory_id": sample.trajectory_id,
        "reward": sample.reward,
        "ids": list(sample.response_ids),
        "mask": list(sample.loss_mask),
        "logprobs": list(sample.logprobs),
        "versions": list(sample.versions),
    }
    return {f"{side}_{name}": value for name, value in values.items()}


def _write_messages(trajectory: Trajectory, sample: TrainingSample) -> JsonObject:
    """Return the conversation up to the last trained step as JSON text, for people and other tokenizers."""
    last = sample.steps[-1]
    step = next(one for one in trajectory.steps if (one.call_id, one.choice) == (last.call_id, last.choice))
    if not trajectory.contents or step.state.messages is None:
        return {"messages": None, "tools": None}
    shown = [resolve(trajectory.contents, one) for one in step.state.messages]
    tools = resolve(trajectory.contents, step.state.tools) if step.state.tools else None
    return {"messages": _write_json([*shown, step.action.message]), "tools": _write_json(tools)}


def _write_json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
