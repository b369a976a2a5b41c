"""query, show, store and doctor as users type them."""

import json

import pytest

from agent_layer.recorder import Recorder
from agent_layer.schema import Accepted
from agent_layer.schema.record import TokenIds
from agent_layer.schema.step import Content, PromptDelta, StepPart, StepState
from agent_layer.schema.training import PolicyVersion
from agent_layer.store import open_store

from ...builders import attempt, call, sampled
from ...stored import write_segment


def make_stored_attempt(tid, at, score):
    answer = sampled(3, version=2, message={"role": "assistant", "content": "[3]"})
    fields = {"prompt": PromptDelta(delta=TokenIds([1, 2])), "agent": "solver"}
    return attempt(tid, *call(tid, "a", answer, at=at, **fields), at=at, score=score)


@pytest.fixture
def stored(settings):
    """A store with two accepted attempts and policy versions up to 2."""
    store = open_store(settings)
    policies = [PolicyVersion(run="r", number=n, location="w", created_at=float(n)) for n in range(3)]
    write_segment(
        store, *policies, *make_stored_attempt("x.0-0", 100.0, 0.0), *make_stored_attempt("x.1-0", 200.0, 1.0)
    )
    return store


def rows(answer):
    status, out, _ = answer
    assert status == 0
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.usefixtures("stored")
def test_a_query_gives_one_json_line_for_each_trajectory(agent_layer):
    newest, oldest = rows(agent_layer("query", "--task", "t", "--format", "jsonl"))

    assert (newest["trajectory_id"], newest["reward"], newest["accepted"]) == ("x.1-0", 1.0, True)
    assert (oldest["trajectory_id"], oldest["num_steps"], oldest["policy_max"]) == ("x.0-0", 1, 2)
    assert newest["started_at"] == "1970-01-01T00:03:20.000Z"
    assert "step" not in newest


@pytest.mark.usefixtures("stored")
def test_a_query_for_a_step_gives_its_exact_tokens(agent_layer):
    command = ("query", "--step", "0", "--policy", "2..", "--reward", "0.5..", "--accepted", "--format", "jsonl")
    [row] = rows(agent_layer(*command))

    assert row["step"]["action"]["prompt_token_ids"] == [1, 2]
    assert row["step"]["action"]["response_token_ids"] == [3]
    assert row["step"]["action"]["logprobs"] == [-0.5]
    assert row["step"]["action"]["policy_versions"] == [[2, 1]]
    assert rows(agent_layer("query", "--step", "1", "--format", "jsonl")) == []


def test_a_summary_counts_accepted_attempts_and_rewards_above_0(settings, agent_layer):
    for number, score in enumerate((0.0, 0.25, 1.0)):
        write_segment(open_store(settings), *make_stored_attempt(f"x.{number}-0", 100.0 + number, score))
    unaccepted = [one for one in make_stored_attempt("x.3-0", 200.0, 0.5) if not isinstance(one, Accepted)]
    write_segment(open_store(settings), *unaccepted)

    attributes = {
        request: rows(agent_layer("summary", *request, "--by", "run", "--format", "jsonl"))[0]
        for request in ((), ("--any",), ("--success", "1"))
    }
    assert {request: (one["count"], one["success_rate"]) for request, one in attributes.items()} == {
        (): (3, pytest.approx(2 / 3)),
        ("--any",): (4, 0.75),
        ("--success", "1"): (3, pytest.approx(1 / 3)),
    }


@pytest.mark.usefixtures("stored")
def test_the_cursor_that_a_query_names_gives_the_next_page(agent_layer):
    _, first, more = agent_layer("query", "--limit", "1", "--format", "jsonl")
    cursor = more.split("'")[1]

    [second] = rows(agent_layer("query", "--limit", "1", "--format", "jsonl", "--cursor", cursor))

    assert [json.loads(first)["trajectory_id"], second["trajectory_id"]] == ["x.1-0", "x.0-0"]


@pytest.mark.usefixtures("stored")
def test_a_trajectory_is_shown_whole_or_one_step_of_it(agent_layer):
    [whole] = rows(agent_layer("show", "x.1-0", "--format", "json"))
    [part] = rows(agent_layer("show", "x.1-0", "--step", "0", "--format", "json"))

    assert whole["steps"] == [part["step"]]
    assert [one["score"] for one in whole["rewards"]] == [1.0]
    assert whole["outcome"]["status"] == "completed"


def test_what_lies_in_blobs_is_shown_with_what_refers_to_it(settings, ship_here, agent_layer):
    words = Content(trajectory_id="x.0-0", hash="h", body=json.dumps("word " * 20_000).encode())
    part = {"trajectory_id": "x.0-0", "run": "r", "source": "gateway", "call_id": "a"}
    start = StepPart(**part, phase="start", at=99.0, state=StepState(messages=["h"]))
    recorder = Recorder(settings)
    recorder.append(*make_stored_attempt("x.0-0", 100.0, 0.0), words, start)
    recorder.close()
    assert ship_here() == 1

    [whole] = rows(agent_layer("show", "x.0-0", "--format", "json"))
    [queried] = rows(agent_layer("query", "--step", "0", "--format", "jsonl"))

    assert whole["steps"][0]["state"]["messages"] == ["word " * 20_000]
    assert queried["step"] == whole["steps"][0]
    assert open_store(settings).get("x.0-0", blobs=False).contents == {}


@pytest.mark.usefixtures("stored")
def test_tables_and_text_say_what_was_said(agent_layer):
    assert "x.1-0" in agent_layer("query")[1]
    assert "assistant: [3]" in agent_layer("query", "--step", "0")[1]
    assert "assistant: [3]" in agent_layer("show", "x.1-0")[1]
    assert "2 + 1 tokens" in agent_layer("show", "x.1-0", "--step", "0")[1]


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        (["query", "--policy", "3.."], "the newest is 2 of run 'r'"),
        (["query", "--run", "nobody", "--policy", "0"], "the newest is no version at all"),
        (["query", "--policy", "2..1"], "policy range '2..1'"),
        (["query", "--reward", "high"], "reward range 'high'"),
        (["query", "--since", "yesterday"], "since 'yesterday'"),
        (["query", "--status", "fine"], "status 'fine'"),
        (["query", "--order", "best"], "order 'best'"),
        (["query", "--cursor", "x"], "cursor 'x'"),
        (["show", "z-0"], "trajectory 'z-0'"),
        (["show", "x.0-0", "--step", "7"], "step 7 of trajectory 'x.0-0'"),
    ],
)
@pytest.mark.usefixtures("stored")
def test_bad_input_is_one_sentence_and_exit_2(agent_layer, arguments, finding):
    status, out, err = agent_layer(*arguments)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert finding in err


def test_an_unreachable_redis_is_one_sentence_and_exit_2(agent_layer, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_REDIS_URL", "redis://:secret@127.0.0.1:1/0")

    status, out, err = agent_layer("query")

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "127.0.0.1:1" in err
    assert "secret" not in err


def test_the_index_is_rebuilt_and_checked_from_the_command_line(agent_layer, stored):
    before = agent_layer("query", "--format", "jsonl")
    stored.redis.delete(*stored.redis.keys(stored.keys.name("*")))

    status, _, err = agent_layer("store", "check")
    assert (status, "unindexed: " in err) == (1, True)
    assert agent_layer("store", "reindex", "--drop")[0] == 0
    assert agent_layer("query", "--format", "jsonl") == before
    status, out, _ = agent_layer("store", "check")
    assert status == 0
    assert out.splitlines() == [
        "1 segment, 2 trajectories, 0 findings",
        "run r: 2 calls, 2 (100.0%) without token ids",
    ]


def test_the_doctor_says_what_is_there_and_what_is_wrong(agent_layer, settings, monkeypatch):
    status, out, _ = agent_layer("doctor")
    lines = {line.split()[1]: line for line in out.splitlines()}
    assert status == 0, out
    assert lines["objects"].startswith("ok")
    assert lines["redis"].startswith("ok")
    assert lines["names"].startswith("ok")

    monkeypatch.setenv("AGENT_LAYER_GATEWAY_URL", "http://127.0.0.1:1")
    settings.dir.chmod(0o777)
    status, out, _ = agent_layer("doctor")
    lines = {line.split()[1]: line for line in out.splitlines()}
    assert status == 1
    assert "does not answer" in lines["gateway"]
    assert "chmod o-rwx" in lines["directory"]


def test_labels_are_given_found_superseded_and_withdrawn(stored, agent_layer):
    status, out, err = agent_layer("label", "x.0-0", "verdict=wrong", "cause=tool=search", "--comment", "read the hint")
    assert (status, err) == (0, "")
    assert out.splitlines() == ["x.0-0: verdict = wrong", "x.0-0: cause = tool=search"]
    assert [row["labels"] for row in rows(agent_layer("query", "--label", "verdict=wrong", "--format", "jsonl"))] == [
        {"verdict": "wrong", "cause": "tool=search"}
    ]
    assert agent_layer("label", "x.0-0", "verdict=right")[1] == "x.0-0: verdict = right, 'wrong' before\n"
    assert agent_layer("label", "x.0-0", "--withdraw", "cause")[1] == "x.0-0: cause withdrawn, 'tool=search' before\n"
    shown = agent_layer("show", "x.0-0")[1]
    assert "  labels      verdict=right\n" in shown
    assert "label verdict = wrong  by human  (superseded)  “read the hint”\n" in shown
    assert "label cause withdrawn  by human\n" in shown
    before = stored.get("x.0-0")
    for request, message in (
        (["x.0-0", "good=yes", "bad"], "expected NAME=VALUE"),
        (["x.0-0", "good=yes", "bad="], "1 to 256 characters"),
        (["x.0-0"], "found neither"),
    ):
        status, out, err = agent_layer("label", *request)
        assert (status != 0, out) == (True, "")
        assert message in err
    assert stored.get("x.0-0") == before


@pytest.mark.usefixtures("stored")
def test_words_inside_trajectories_are_found(settings, agent_layer):
    words = Content(trajectory_id="x.1-0", hash="h", body=b'{"role": "user", "content": "look \\u001b[31m here"}')
    write_segment(open_store(settings), words)

    [row] = rows(agent_layer("query", "--text", "look here", "--format", "jsonl"))
    assert (row["trajectory_id"], row["reward"]) == ("x.1-0", 1.0)
    assert row["match"] == {"step": None, "where": "message", "snippet": "look \x1b[31m here"}
    status, out, err = agent_layer("query", "--text", "look", "--reward", "0.5..")
    assert (status, err) == (0, "")
    assert "x.1-0" in out
    assert "\x1b[31m" not in out
    assert rows(agent_layer("query", "--text", "look", "--reward", "..0.5", "--format", "jsonl")) == []
    for more in (["--count"], ["--explain"], ["--order", "reward"], ["--step", "last"]):
        status, out, err = agent_layer("query", "--text", "look", *more)
        assert (status != 0, out) == (True, "")
        assert "leave these out" in err
