"""The account of a check: what the engine counted is trained, or has a cause; and drift between two checks."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from agent_layer.errors import BadInputError
from agent_layer.local import ScriptedEngine, ScriptPrompt
from agent_layer.schema import ExcludedRollout
from agent_layer.settings import Settings
from envs.harnesses import (
    NeededLengths,
    PartFigures,
    Qualification,
    RenderedFigures,
    find_harness,
    find_qualification,
    save_qualification,
)
from envs.harnesses.qualified import find_failure
from trainer_adapter.data.samples import read_samples
from trainer_adapter.qualification.account import EngineAnswer, account_tokens
from trainer_adapter.qualification.check import check_harness
from trainer_adapter.qualification.drift import find_drift
from trainer_adapter.qualification.render import find_needed_lengths, measure_rows
from trainer_adapter.qualification.script import Delegate, Part, ScriptedModel, Shell, Speak, find_fault

from ...profiles import num_examples
from .step_trees import call, make_trajectory, step_trees


def list_answers(trajectory, extra=0):
    """What the engine says of each step; of one that was cut off it sampled more than arrived."""
    for step in trajectory.steps:
        more = [7] * extra if step.status == "aborted" else []
        yield EngineAnswer(
            prompt_token_ids=list(step.prompt_token_ids), token_ids=[*step.action.response_token_ids, *more]
        )


@settings(max_examples=num_examples(200))
@given(step_trees(), st.integers(0, 3), st.randoms())
def test_what_was_sampled_is_trained_or_has_the_cause_of_its_step(trajectory, extra, random):
    answers = list(list_answers(trajectory, extra))
    random.shuffle(answers)
    found = read_samples(trajectory)

    account = account_tokens(answers, trajectory, found)

    assert account.sampled == sum(len(one.token_ids) for one in answers)
    assert account.trained == sum(sum(sample.loss_mask) for sample in found.samples)
    assert account.trained + sum(account.lost.values()) == account.sampled
    expected = Counter()
    for step in trajectory.steps:
        num_tokens = len(step.action.response_token_ids)
        if step.role == "aux":
            num_more = extra if step.status == "aborted" else 0
            expected["aux"] += num_tokens + num_more
        elif step.status != "ok":
            cut = step.status == "aborted"
            expected["cut_stream" if cut else step.status] += num_tokens + (extra if cut else 0)
    assert sum(account.lost.values()) == expected.total()
    assert set(account.lost) <= {cause for cause, number in expected.items() if number}


def test_an_answer_that_no_step_holds_is_unrecorded():
    trajectory = make_trajectory(call("a", [[1, 2]], [9]))
    others = [EngineAnswer(prompt_token_ids=[9], token_ids=[3]), EngineAnswer(prompt_token_ids=[8], token_ids=[1, 2])]

    account = account_tokens([*list_answers(trajectory), *others], trajectory, read_samples(trajectory))

    assert (account.sampled, account.trained, account.lost) == (5, 2, {"unrecorded": 3})


def test_an_answer_that_was_cut_off_whole_belongs_to_a_step_without_tokens():
    cut = msgspec.structs.replace(call("b", [[]], [], status="aborted", at=2.0), prompt=None, actions=[])
    trajectory = make_trajectory(call("a", [[1, 2]], [9]), cut)
    others = [
        EngineAnswer(prompt_token_ids=[9, 1, 2, 5], token_ids=[3, 4], is_whole=False),
        EngineAnswer(prompt_token_ids=[8], token_ids=[6], is_whole=False),
    ]
    first = EngineAnswer(prompt_token_ids=[9], token_ids=[1, 2])

    account = account_tokens([first, *others], trajectory, read_samples(trajectory))

    assert account.lost == {"cut_stream": 2, "unrecorded": 1}


def test_each_agent_with_a_name_has_its_own_trained_tokens():
    steps = [call("a", [[1, 2]], [9]), *(call(name, [[3, 4, 5]], [7], agent=name) for name in ("b", "c"))]
    trajectory = make_trajectory(*steps, call("d", [[6]], [8], agent="d", role="aux"))

    account = account_tokens(list_answers(trajectory), trajectory, read_samples(trajectory))

    assert account.agents == {"b": 3, "c": 3}


def test_an_excluded_rollout_loses_all_of_the_policy_to_its_reason():
    trajectory = make_trajectory(call("a", [[1, 2]], [9]), call("b", [[3]], [8], role="aux"))
    found = ExcludedRollout(trajectory_id="t-0", kind="greedy", reason="greedy")

    account = account_tokens(list_answers(trajectory), trajectory, found)

    assert (account.trained, account.lost) == (0, {"aux": 1, "excluded: greedy": 2})


def test_tokens_in_two_masks_are_a_negative_loss():
    trajectory = make_trajectory(call("a", [[1, 2]], [9]))
    once = read_samples(trajectory)
    twice = msgspec.structs.replace(once, samples=once.samples * 2)

    account = account_tokens(list_answers(trajectory), trajectory, twice)

    assert (account.sampled, account.trained, account.lost) == (2, 4, {"trained_twice": -2})


def test_forks_are_counted_apart_from_other_findings():
    second = call("b", [[3]], [9, 1], findings=["prefix_break: template", "not_applied:x"])
    account = account_tokens([], make_trajectory(call("a", [[1]], [9]), second), ExcludedRollout(
        trajectory_id="t-0", kind="k", reason="r"
    ))  # fmt: skip

    assert (account.forks, account.findings) == ({"template": 1}, ["not_applied:x"])


@pytest.mark.parametrize(
    ("prompts", "answers", "rows"),
    [
        ([[1], [1, 2, 3]], [[2], [4]], [4]),
        ([[1], [1, 5, 3]], [[2], [4]], [2, 4]),
        ([[1], [1, 2, 3], [1, 2, 6]], [[2], [4], [7]], [4, 4]),  # two go on from one
        ([[1], [1]], [[2], [3]], [2, 2]),
        ([], [], []),
    ],
)
def test_a_row_ends_where_no_later_prompt_goes_on(prompts, answers, rows):
    assert measure_rows(prompts, [[*one, *more] for one, more in zip(prompts, answers, strict=True)]) == rows


PART = PartFigures(
    name="tools", num_calls=3, num_steps=3, sampled=50, trained=50, lost={}, num_rows=1, longest_row=400,
    row_tokens=400, forks={}, findings=[],
)  # fmt: skip


def rendered(first_request, longest_row):
    return RenderedFigures(
        template="qwen3", first_request=first_request, longest_row=longest_row, num_rows=1, row_tokens=900, sampled=50
    )


RESULT = Qualification(
    harness="h", version="1", checked_on="2026-11-28", agent_layer="0.1.0", interpreter="node v20", first_request=300,
    parts=[PART], rendered=[rendered(100, 900)],
)  # fmt: skip
HARNESS = find_harness("codex")


def with_part(**fields):
    return msgspec.structs.replace(RESULT, parts=[msgspec.structs.replace(PART, **fields)])


@pytest.mark.parametrize(
    ("after", "named"),
    [
        (RESULT, None),
        (msgspec.structs.replace(RESULT, checked_on="2027-01-01"), None),
        (with_part(longest_row=410), None),
        (with_part(longest_row=800), "longest row was 400, is 800"),
        (with_part(num_calls=4), "num_calls was 3, is 4"),
        (with_part(sampled=44), "sampled was 50, is 44"),
        (with_part(sampled=61, lost={"cut_stream": 11}), None),  # how much of a cut stream was sampled is chance
        (with_part(forks={"template": 2}), "forks was {}, is {'template': 2}"),
        (with_part(findings=["unread"]), "findings was [], is ['unread']"),
        (msgspec.structs.replace(RESULT, version="2"), "version was 1, is 2"),
        (msgspec.structs.replace(RESULT, box="session"), "box was none, is session"),
        (msgspec.structs.replace(RESULT, first_request=600), "first request was 300 words, is 600"),
        (msgspec.structs.replace(RESULT, parts=[]), "part 'tools' is gone"),
        (with_part(num_steps=4), "num_steps was 3, is 4"),
        (with_part(lost={"cut_stream": 11, "unrecorded": 2}), "lost was {}, is {'unrecorded': 2}"),
        (msgspec.structs.replace(RESULT, rendered=[rendered(110, 900)]), None),
        (msgspec.structs.replace(RESULT, rendered=[rendered(200, 900)]), "qwen3: first_request was 100, is 200"),
        (msgspec.structs.replace(RESULT, rendered=[rendered(100, 700)]), "qwen3: longest_row was 900, is 700"),
    ],
)
def test_drift_is_what_an_agent_does_otherwise(after, named):
    found = list(find_drift(RESULT, after))

    assert found == [] if named is None else [one for one in found if named in one]


@pytest.mark.parametrize(
    ("fields", "is_clean"),
    [
        ({"lost": {"aux": 4, "cut_stream": 3}}, True),
        ({"lost": {"unrecorded": 1}}, False),
        ({"lost": {"excluded: greedy": 9}}, False),
        ({"findings": ["refused: UNKNOWN_PATH"]}, False),
        ({"fault": "expected all turns"}, False),
    ],
)
def test_a_check_is_clean_when_the_policy_lost_nothing_but_to_side_calls_and_cut_streams(fields, is_clean):
    assert with_part(**fields).is_clean is is_clean


def test_a_check_of_nothing_is_not_clean():
    assert not msgspec.structs.replace(RESULT, parts=[]).is_clean


@pytest.mark.parametrize("begun", [[], [{"role": "user", "content": "here"}, {"role": "assistant", "content": "ok"}]])
def test_a_sub_agent_asks_once_whatever_its_conversation_begins_with(begun):
    model = ScriptedModel(HARNESS, [], ScriptedEngine(model="policy"))
    messages = [*begun, {"role": "user", "content": "PART-OF-THE-CHECK 1: look around."}]
    tools = [{"type": "function", "function": {"name": HARNESS.shell.name}}]

    def ask():
        return model(ScriptPrompt(messages=messages, tools=tools, choice=0, body={}, weights=str))

    first = ask()
    messages += [{"role": "assistant", **first}, {"role": "tool", "content": "part"}]

    assert first["tool_calls"]
    assert " ".join(ask()) == "My part is done."
    assert model.num_delegated == 1


def test_what_failed_is_kept_beside_the_last_clean_result_until_the_next(tmp_path):
    kept = Settings(dir=tmp_path)
    clean, failed = RESULT, with_part(fault="expected all turns")
    assert (find_qualification(kept, "h"), find_failure(kept, "h")) == (None, None)

    for result, expected in [(failed, (None, failed)), (clean, (clean, None)), (failed, (clean, failed))]:
        path = save_qualification(kept, result)

        assert msgspec.json.decode(path.read_bytes(), type=Qualification) == result
        assert (find_qualification(kept, "h"), find_failure(kept, "h")) == expected


def test_needed_lengths_are_those_of_the_longest_template_and_of_short_parts():
    shown = [rendered(100, 9000), rendered(2000, 800)]
    shown = [msgspec.structs.replace(one, short_row=row) for one, row in zip(shown, (1025, 3), strict=True)]

    assert find_needed_lengths(shown, 100) == NeededLengths(max_model_len=3072, max_row_tokens=2048)
    assert find_needed_lengths([], 100) is None


def test_a_part_that_does_not_exist_is_named_before_anything_starts(tmp_path):
    with pytest.raises(BadInputError, match=r"expected --part as one of 'tools', .*'cut and resume', found 'tool'"):
        check_harness(Settings(dir=tmp_path), HARNESS, print, "tool")


@pytest.mark.parametrize(("printed", "fault"), [("ran42", None), ("forkpty(3) failed.", "its shell to print ran42")])
def test_a_shell_that_does_not_run_what_it_is_told_is_named(printed, fault):
    turns = [Shell(("echo ran$((6*7))",), ("ran42",)), Speak("Done.")]
    model = ScriptedModel(HARNESS, turns, ScriptedEngine(model="policy"))
    messages = [{"role": "user", "content": "Do it."}]

    messages += [
        {"role": "assistant", **model(ScriptPrompt(messages=messages, tools=[], choice=0, body={}, weights=str))},
        {"role": "tool", "content": printed},
    ]
    model(ScriptPrompt(messages=messages, tools=[], choice=0, body={}, weights=str))

    found = find_fault(model, Part(name="p", turns=turns), HARNESS, num_aux=0, num_cut=0, num_agents=0)
    assert found is None if fault is None else fault in found


@pytest.mark.parametrize(
    ("turns", "is_cut", "counts", "fault"),
    [
        ([Speak("x")], False, (0, 0, 0, 0), None),
        ([Speak("x")], True, (0, 0, 7, 0), None),
        ([Speak("x")], False, (0, 0, 7, 0), "expected no stream to be cut, found 7 tokens"),
        ([Speak("x")], False, (0, 1, 0, 0), "expected the 0 side calls of its declaration to be aux, found 1"),
        ([Delegate(2)], False, (2, 0, 0, 2), None),
        ([Delegate(2)], False, (1, 0, 0, 1), "expected 2 sub-agents to ask, found 1"),
        ([Delegate(2)], False, (2, 0, 0, 1), "expected 2 sub-agents with names and rows of their own, found 1"),
        ([Speak("x")], False, (0, 0, 0, 1), "expected 0 sub-agents with names and rows of their own, found 1"),
    ],
)
def test_no_token_hides_behind_a_cause_that_the_script_does_not_have(turns, is_cut, counts, fault):
    num_delegated, num_aux, num_cut, num_agents = counts
    harness = msgspec.structs.replace(HARNESS, names_agents=True)
    model = ScriptedModel(harness, [], ScriptedEngine(model="policy"))
    model.num_delegated = num_delegated
    part = Part(name="p", turns=turns, is_cut=is_cut)

    found = find_fault(model, part, harness, num_aux=num_aux, num_cut=num_cut, num_agents=num_agents)

    assert found is None if fault is None else fault in found
