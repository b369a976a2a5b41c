"""Texts from outside go through the user's function before anything of them is kept."""

import re

import pytest

from agent_layer.errors import BadInputError, RedactionError
from agent_layer.recorder.log import Recorder
from agent_layer.recorder.redaction import load_redaction, redact_record
from agent_layer.schema.record import TokenIds
from agent_layer.schema.rollout import AttemptStarted, Outcome
from agent_layer.schema.step import Action, Content, Observation, StepPart
from agent_layer.schema.task import Task

OWN = {"trajectory_id": "r-0", "run": "secret-run"}


def hide(text):
    return re.sub("secret", "***", text)


def fail(text):
    raise ValueError(text)


def test_texts_at_any_depth_are_redacted_and_names_are_not():
    part = StepPart(
        **OWN,
        call_id="c",
        source="gateway",
        phase="end",
        at=1.0,
        actions=[Action(message={"content": [{"text": "a secret"}]}, response_token_ids=TokenIds([1, 2]))],
        sampling_asked={"stop": ["secret"], "seed": 1},
        error="secret!",
    )

    kept = redact_record(part, hide)

    assert kept.actions[0].message == {"content": [{"text": "a ***"}]}
    assert kept.actions[0].response_token_ids == TokenIds([1, 2])
    assert (kept.sampling_asked, kept.error, kept.run) == ({"stop": ["***"], "seed": 1}, "***!", "secret-run")
    assert part.error == "secret!"


@pytest.mark.parametrize(
    "record",
    [
        Content(trajectory_id="r-0", hash="h", body=b'{"role":"user","content":"a secret"}'),
        Observation(**OWN, observation_id="o", name="tool", at=1.0, arguments={"a": "secret"}, output=["secret"]),
        Outcome(**OWN, status="failed", ended_at=1.0, error="secret", result={"b": "secret"}),
        AttemptStarted(
            **OWN,
            rollout_id="r",
            attempt=0,
            task_id="t",
            started_at=1.0,
            task=Task(id="t", run="r", input="secret", grading={"answer": "secret"}),
        ),
    ],
)
def test_no_kind_of_record_keeps_a_text(record):
    shown = repr(redact_record(record, hide)).replace("secret-run", "")

    assert "secret" not in shown
    assert "***" in shown


def test_what_is_no_text_stays_as_it_is():
    picture = Content(trajectory_id="r-0", hash="h", body=b"\x89PNG secret")

    assert redact_record(picture, hide) == picture


@pytest.mark.parametrize("function", [fail, lambda _: None])
def test_a_function_that_fails_keeps_nothing(function):
    with pytest.raises(RedactionError, match="nothing was recorded"):
        redact_record(Outcome(**OWN, status="failed", ended_at=1.0, error="secret"), function)


@pytest.mark.parametrize("name", ["", "no_such_module:f", "re:no_such_name", "re", "re:__doc__"])
def test_a_function_that_is_not_there_is_said_at_the_start(name):
    with pytest.raises(BadInputError, match="setting redact"):
        load_redaction(name)


def test_a_recorder_writes_nothing_unredacted(settings):
    recorder = Recorder(settings.model_copy(update={"redact": "html:escape"}))

    recorder.append(Outcome(**OWN, status="failed", ended_at=1.0, error="<secret>"))
    recorder.close()

    written = b"".join(path.read_bytes() for path in settings.log_dir.iterdir())
    assert b"&lt;secret&gt;" in written
    assert b"<secret>" not in written
