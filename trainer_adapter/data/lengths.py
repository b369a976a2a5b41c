"""Rollouts and rows that are too long: what is trained of them, and what is cut.

A rollout is overlong when it ran out of turns, tokens, time or context, or when the length limit cut off its last
answer. ``LengthRule.overlong`` decides:

* ``score``: its reward is a reward, and its tokens are trained.
* ``mask``: its reward counts in the baseline of its group, and none of its tokens is trained (overlong filtering of
  DAPO, Yu et al. 2025, section 3.4).
* ``null``: its reward is unknown, so that it is neither in the baseline nor trained.

A row is too long above ``LengthRule.max_row_tokens``, prompt included. Cut at its end, it keeps the exact context of
each token that is left. Its beginning is never cut: all tokens behind it would have another log-probability.

A row beyond the model's vocabulary, its positions or the memory would end every update that has it: its rollout is left
out, whatever the rule.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from agent_layer.schema import (
    MISSED_FORM,
    ExcludedRollout,
    JsonObject,
    LengthRule,
    Logprobs,
    StepRef,
    TokenIds,
    TrainingSample,
    Trajectory,
    as_json_object,
)
from trainer_adapter.data.faults import exclude
from trainer_adapter.data.routes import cut_routes
from trainer_adapter.data.samples import DroppedStep, SampleSet

LONG_ROW: Final = "long_row"
"""Why tokens, or a whole rollout, are not trained: their row is too long."""
_CUT_OFF: Final = "length"
"""Finish reason of an answer that reached the most tokens it may have."""
BAD_TOKEN_IDS: Final = "bad_token_ids"
"""Kind of a rollout with an id that is no token of the model."""


class ModelBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the rows of one model; None: not known, so there is none."""

    vocab_size: int | None = None
    """Ids count from 0 up to here."""
    max_positions: int | None = None
    """Most tokens of a row, prompt included."""
    max_fitting: int | None = None
    """Most tokens of a row that may fit into memory, as an update that ran out of it has shown."""


NO_BOUNDS: Final = ModelBounds()


def is_overlong(trajectory: Trajectory) -> bool:
    """Whether a rollout ended because it was too long; with best of n, when that cut all choices of its last call.

    One whose agent failed because an answer missed its form was not.
    """
    outcome = trajectory.outcome
    if outcome is not None and outcome.status == "truncated" and MISSED_FORM not in outcome.findings:
        return True
    answered = [step for step in trajectory.steps if step.role == "policy" and step.status == "ok"]
    last = [step for step in answered if step.call_id == answered[-1].call_id]
    return bool(last) and all(step.action.finish_reason == _CUT_OFF for step in last)


def known_reward(trajectory: Trajectory, rule: LengthRule) -> float | None:
    """Return the reward of a rollout, as far as the trainer may know it."""
    return None if rule.overlong == "null" and is_overlong(trajectory) else trajectory.reward


def fit_rows(trajectory: Trajectory, found: SampleSet, rule: LengthRule) -> SampleSet | ExcludedRollout:
    """Return the rows of a rollout that are trained, or why it is left out.

    Args:
        trajectory: of the rollout.
        found: all of its rows.
        rule: what happens to a rollout and to rows that are too long.
    """
    if rule.overlong != "score" and is_overlong(trajectory):
        cuts = [cut for sample in found.samples for cut in _cuts(sample.steps, [], "overlong")]
        return msgspec.structs.replace(found, samples=[], cuts=cuts)
    most = rule.max_row_tokens
    sizes = [len(sample.prompt_ids) + len(sample.response_ids) for sample in found.samples]
    if most is None or max(sizes, default=0) <= most:
        return found
    if rule.long_rows == "exclude":
        return exclude(
            trajectory,
            LONG_ROW,
            f"its longest row has {max(sizes)} tokens, optimizer.max_row_tokens is {most}; raise it, let"
            " limits.context_tokens of the task end rollouts earlier, or set optimizer.long_rows to 'cut_end'",
        )
    fitted = [_cut_end(sample, most) for sample in found.samples]
    return msgspec.structs.replace(
        found,
        samples=[sample for sample in fitted if sample.steps],
        cuts=[
            cut
            for before, after in zip(found.samples, fitted, strict=True)
            for cut in _cuts(before.steps, after.steps, LONG_ROW)
        ],
    )


def _cut_end(sample: TrainingSample, most: int) -> TrainingSample:
    """Return a row without its tokens from ``most`` on, and without context that no trained token follows."""
    room = max(0, most - len(sample.prompt_ids))
    steps = [_shorten(step, room) for step in sample.steps if step.start < room]
    end = steps[-1].start + steps[-1].num_tokens if steps else 0
    return msgspec.structs.replace(
        sample,
        response_ids=TokenIds(sample.response_ids[:end]),
        loss_mask=TokenIds(sample.loss_mask[:end]),
        logprobs=Logprobs(sample.logprobs[:end]),
        versions=TokenIds(sample.versions[:end]),
        steps=steps,
        routed_experts=cut_routes(sample.routed_experts, len(sample.prompt_ids) + end),
    )


def _shorten(step: StepRef, room: int) -> StepRef:
    return msgspec.structs.replace(step, num_tokens=min(step.num_tokens, room - step.start))


def _cuts(before: Sequence[StepRef], after: Sequence[StepRef], reason: str) -> list[DroppedStep]:
    left = {(step.call_id, step.choice): step.num_tokens for step in after}
    cuts = [(step, step.num_tokens - left.get((step.call_id, step.choice), 0)) for step in before]
    return [
        DroppedStep(call_id=step.call_id, choice=step.choice, reason=reason, num_tokens=num_cut)
        for step, num_cut in cuts
        if num_cut
    ]


def read_bounds(config: JsonObject) -> ModelBounds:
    """Return the bounds that the content of a model's config.json names."""
    fields = as_json_object(config.get("text_config", config))
    longest = _count(fields, "max_position_embeddings") or _count(fields, "n_positions")
    return ModelBounds(
        vocab_size=_count(fields, "vocab_size"), max_positions=longest and int(longest * _stretch(fields))
    )


def find_misfit(trajectory: Trajectory, samples: list[TrainingSample], bounds: ModelBounds) -> ExcludedRollout | None:
    """Return why the rows of a rollout cannot be given to the model; None: they can."""
    end = 2**31 if bounds.vocab_size is None else bounds.vocab_size
    for sample in samples:
        for ids in (sample.prompt_ids, sample.response_ids):
            if ids and not 0 <= min(ids) <= max(ids) < end:
                found = next(one for one in ids if not 0 <= one < end)
                return exclude(
                    trajectory,
                    BAD_TOKEN_IDS,
                    f"expected token ids from 0 to {end - 1}, which the model has, found {found}; give the engine the"
                    " tokenizer and weights of the model that is trained",
                )
        num_tokens = len(sample.prompt_ids) + len(sample.response_ids)
        if bounds.max_positions is not None and num_tokens > bounds.max_positions:
            return exclude(
                trajectory,
                LONG_ROW,
                f"a row has {num_tokens} tokens, the model has {bounds.max_positions} positions; let"
                " limits.context_tokens of the task end rollouts earlier, or set optimizer.max_row_tokens and"
                " optimizer.long_rows to 'cut_end'",
            )
        if bounds.max_fitting is not None and num_tokens > bounds.max_fitting:
            return exclude(
                trajectory,
                LONG_ROW,
                f"a row has {num_tokens} tokens, and an update ran out of memory with hardly more than"
                f" {bounds.max_fitting}; set optimizer.max_row_tokens, optimizer.gradient_checkpointing, or delete"
                " row_memory.json in the run's directory where there is more memory now",
            )
    return None


def _count(fields: Mapping[str, object], name: str) -> int | None:
    number = fields.get(name)
    return number if isinstance(number, int) and number > 0 else None


def _stretch(fields: Mapping[str, object]) -> float:
    """Return by how much engines lengthen a context at most, as RoPE scaling says."""
    scaling = as_json_object(fields.get("rope_scaling") or fields.get("rope_parameters"))
    factor = scaling.get("factor")
    return max(1.0, float(factor)) if isinstance(factor, int | float) else 1.0
