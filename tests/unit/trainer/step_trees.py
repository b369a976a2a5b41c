"""Trajectories for tests of the trainer: calls of the policy, and random trees of them."""

from hypothesis import strategies as st

from agent_layer.schema.record import Logprobs, TokenIds
from agent_layer.schema.rollout import AttemptStarted
from agent_layer.schema.step import Action, PromptDelta, StepPart
from agent_layer.schema.trajectory import assemble_trajectory

STARTED = AttemptStarted(
    trajectory_id="t-0", rollout_id="t", attempt=0, run="r", task_id="q", started_at=0.0, group_id="g"
)


def call(call_id, answers, delta, *, at=1.0, parent=None, prefix_length=0, **fields):
    """One call of the policy; token k of an answer has log-probability -token/100 and the given version."""
    version = fields.pop("version", 0)
    actions = [
        Action(
            response_token_ids=TokenIds(ids),
            logprobs=Logprobs([-token / 100 for token in ids]),
            policy_versions=[(version, len(ids))],
        )
        for ids in answers
    ]
    parent_call, parent_choice = parent or (None, 0)
    prompt = PromptDelta(
        delta=TokenIds(delta), parent_call=parent_call, parent_choice=parent_choice, prefix_length=prefix_length
    )
    known = {"role": "policy", "status": "ok", "capture_level": "tokens", "temperature": 1.0, **fields}
    known.setdefault("logprobs_mode", "processed")
    return StepPart(
        trajectory_id="t-0",
        call_id=call_id,
        run="r",
        source="gateway",
        phase="end",
        at=at,
        prompt=prompt,
        actions=actions,
        **known,
    )


def make_trajectory(*records, started=STARTED):
    return assemble_trajectory("t-0", [started, *records])


@st.composite
def step_trees(draw, *, as_records=False):
    """Trajectories of several agents, with best-of-n calls, forks, helpers and steps that did not end well."""
    token_lists = st.lists(st.integers(0, 99), min_size=1, max_size=4)
    calls, lengths = [], {}
    for number in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([None, *lengths]))
        answers = draw(st.lists(token_lists, min_size=1, max_size=3))
        delta = draw(token_lists)
        prefix_length = lengths[parent] if parent else 0
        fields = {
            "role": draw(st.sampled_from(["policy", "policy", "policy", "aux"])),
            "status": draw(st.sampled_from(["ok", "ok", "ok", "aborted", "error"])),
            "agent": draw(st.sampled_from(["writer", "critic"])),
            "temperature": draw(st.sampled_from([1.0, 0.7])),
            "version": draw(st.integers(0, 3)),
        }
        call_id = f"c{number}"
        calls.append(
            call(call_id, answers, delta, at=float(number), parent=parent, prefix_length=prefix_length, **fields)
        )
        for choice, answer in enumerate(answers):
            lengths[call_id, choice] = prefix_length + len(delta) + len(answer)
    return calls if as_records else make_trajectory(*calls)
