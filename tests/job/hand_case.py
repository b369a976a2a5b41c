"""One batch written by hand: its records, its rows, and its loss by plain autograd over the Hugging Face model.

Three groups with rewards (1, 0, null, 0.5), three times 0.25, and (null, 2, -1), and one with a lone reward: a tool
between turns, a fork, an aborted step, two agents, best of two, two temperatures in one chain, two versions.
"""
# ruff: noqa: PLC0415  # torch takes seconds to import

import random

import msgspec

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory
from agent_layer.store.consumers.follower import GroupDelivery
from trainer_adapter.algorithms.options import CorrectionConfig
from trainer_adapter.data.advantages import select_batch
from trainer_adapter.data.groups import read_group

from ..builders import attempt, closed_group
from .plain_losses import PlainRollout, plain_loss


def engine_logprobs(ids):
    """What the engine says of these tokens; near the probability of any token in the untrained model."""
    return [-3.0 + random.Random(f"{token} {place}").uniform(-0.4, 0.4) for place, token in enumerate(ids)]


def record_call(trajectory_id, name, *answers, after=None, delta=(3, 12), at=1.0, **fields):
    """A call of the policy; ``after`` is (call, choice, tokens before) that its prompt continues."""
    version, status = fields.pop("version", 1), fields.pop("status", "ok")
    finish_reason = fields.pop("finish_reason", None)
    actions = [
        Action(
            response_token_ids=TokenIds(ids),
            logprobs=Logprobs(engine_logprobs(ids)),
            policy_versions=[(version, len(ids))],
            finish_reason=finish_reason,
        )
        for ids in answers
    ]
    parent, choice, length = after or (None, 0, 0)
    return StepPart(
        trajectory_id=trajectory_id,
        run="r",
        call_id=name,
        source="gateway",
        phase="end",
        at=at,
        prompt=PromptDelta(delta=TokenIds(delta), parent_call=parent, parent_choice=choice, prefix_length=length),
        actions=actions,
        status=status,
        capture_level="tokens",
        logprobs_mode="processed",
        **{"temperature": 1.0} | fields,
    )


def with_a_tool(name):
    return [
        record_call(name, "a", [13, 14], version=0),
        record_call(name, "b", [15], after=("a", 0, 4), delta=[4, 5], at=2.0),
    ]


def with_a_fork(name):
    return [
        record_call(name, "a", [13]),
        record_call(name, "b", [16, 17], after=("a", 0, 3), delta=[4], at=2.0),
        record_call(name, "c", [18], after=("a", 0, 3), delta=[5, 6], at=3.0),
    ]


def with_an_aborted_step(name):
    return [record_call(name, "a", [13, 14], status="aborted"), record_call(name, "b", [19, 20, 13], at=2.0)]


def with_two_agents(name):
    return [
        record_call(name, "a", [12, 13], agent="solver"),
        record_call(name, "b", [14], delta=[7, 8, 9], agent="critic", at=2.0),
    ]


def with_best_of_two_at_two_temperatures(name):
    return [
        record_call(name, "a", [15, 16], [17]),
        record_call(name, "b", [18, 19], after=("a", 0, 4), delta=[5], temperature=0.5, version=0, at=2.0),
    ]


def plain(name):
    return [record_call(name, "a", [13])]


GROUPS = {
    "one": [(1.0, with_a_tool), (0.0, with_a_fork), (None, plain), (0.5, with_an_aborted_step)],
    "equal": [(0.25, plain)] * 3,
    "two": [(None, plain), (2.0, with_two_agents), (-1.0, with_best_of_two_at_two_temperatures)],
    "lone": [(3.0, plain), (None, plain)],
}

ROLLOUTS = [
    # advantage, then (prompt, response, mask, temperature) of each row
    (0.5, [([3, 12], [13, 14, 4, 5, 15], [1, 1, 0, 0, 1], 1.0)]),
    (-0.5, [([3, 12], [13, 4, 16, 17], [1, 0, 1, 1], 1.0), ([3, 12], [13, 5, 6, 18], [0, 0, 0, 1], 1.0)]),
    (0.0, [([3, 12], [19, 20, 13], [1, 1, 1], 1.0)]),
    (1.5, [([3, 12], [12, 13], [1, 1], 1.0), ([7, 8, 9], [14], [1], 1.0)]),
    (
        -1.5,
        [
            ([3, 12], [15, 16], [1, 1], 1.0),
            ([3, 12], [15, 16, 5, 18, 19], [0, 0, 0, 1, 1], 0.5),
            ([3, 12], [17], [1], 1.0),
        ],
    ),
]


def make_batch():
    return select_batch([one.samples for one in read_groups()], keep_equal=False)


def read_groups():
    read = []
    for group_id, members in GROUPS.items():
        names = [f"{group_id}.{number}-0" for number in range(len(members))]
        trajectories = [
            assemble_trajectory(name, attempt(name, *calls(name), score=score, group_id=group_id))
            for name, (score, calls) in zip(names, members, strict=True)
        ]
        group = closed_group(group_id, *names, group_size=len(names))
        read.append(read_group(GroupDelivery(group, trajectories, lambda: None), 1, 1))
    return read


def compute_logprobs(reader, rows):
    """Log-probabilities of the trained tokens of these rows under the model, at the rows' temperatures."""
    import torch

    found = []
    for prompt, response, mask, temperature in rows:
        logits = reader(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1] / temperature
        chosen = logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None])[:, 0]
        found.append(chosen[torch.tensor(mask).bool()])
    return torch.cat(found)


def make_engine(rows):
    """What the engine said of the trained tokens of these rows, answer by answer."""
    import torch

    found = []
    for _, response, mask, _ in rows:
        answer = []
        for token, is_trained in zip([*response, None], [*mask, 0], strict=True):
            if is_trained:
                answer.append(token)
            else:
                found += engine_logprobs(answer)
                answer = []
    return torch.tensor(found)


def teacher_logprob(token, place):
    """What a teacher says of a sampled token at this place of a row's response."""
    return -2.5 + random.Random(f"teacher {token} {place}").uniform(-0.6, 0.6)


def make_taught_batch():
    """The batch with the teacher's numbers."""
    batch = make_batch()
    found = [
        Logprobs(
            teacher_logprob(token, place) if is_trained else 0.0
            for place, (token, is_trained) in enumerate(zip(one.response_ids, one.loss_mask, strict=True))
        )
        for one in batch.samples
    ]
    return msgspec.structs.replace(batch, teacher_logprobs=found)


def make_teacher(rows):
    """What the teacher says of the trained tokens of these rows."""
    import torch

    return torch.tensor(
        [
            teacher_logprob(token, place)
            for _, response, mask, _ in rows
            for place, (token, is_trained) in enumerate(zip(response, mask, strict=True))
            if is_trained
        ]
    )


def compute_advantages(advantage, rows, present, distill):
    """Of each trained token of a rollout: the reward's, and the teacher's log-probability above the policy's own."""
    import torch

    of_reward = torch.full((len(present),), 0.0 if distill and distill.replace_rewards else advantage)
    return of_reward + distill.coefficient * (make_teacher(rows) - present) if distill else of_reward


def expected_update(reader, algorithm, before=None):
    """Loss and norm of its gradient by plain autograd; ``before`` has the weights before the update, if others."""
    import torch

    correction, rollouts = algorithm.correction, []
    reader.zero_grad()
    for advantage, rows in ROLLOUTS:
        new, engine = compute_logprobs(reader, rows), make_engine(rows)
        is_weighted = correction.weights and (not correction.bypass or algorithm.loss == "reinforce")
        ratios = torch.exp(new.detach() - engine).clamp(max=correction.upper)
        weights = ratios if is_weighted else torch.ones(len(new))
        if algorithm.loss == "geo_mean":  # weights of a sequence act by their geometric mean
            weights = torch.exp(torch.log(weights).mean()).expand_as(weights)
        old = engine if correction.bypass else compute_logprobs(before or reader, rows).detach()
        present = compute_logprobs(before or reader, rows).detach()
        rollouts.append(
            PlainRollout(new, old, compute_advantages(advantage, rows, present, algorithm.distill), weights)
        )
    loss = plain_loss(rollouts, algorithm)
    loss.backward()
    return loss.item(), torch.stack([one.grad.norm() for one in reader.parameters()]).norm().item()


DECOUPLED = CorrectionConfig()
NO_WEIGHTS = CorrectionConfig(weights=None)
BYPASS = CorrectionConfig(bypass=True)
"""The ratio is that of trainer and engine, so it is not 1 in the first minibatch."""
