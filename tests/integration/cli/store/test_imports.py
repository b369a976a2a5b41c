"""``store import``: foreign logs are imported once, and whole or not at all."""

import json

import pytest

from agent_layer.store import open_store
from agent_layer.store.index.deletion import apply_tombstones

TALK = {
    "messages": [
        {"role": "user", "content": "6 times 7?"},
        {"role": "assistant", "content": "42"},
        {"role": "user", "content": "sure?"},
        {"role": "assistant", "content": "yes"},
    ],
    "reward": 1.0,
    "task_id": "t",
}


@pytest.fixture
def log(tmp_path):
    """``log(line, …)`` writes a file of these lines, each text or an object."""

    def log(*lines):
        path = tmp_path / "log.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

    return log


def test_what_was_imported_can_be_asked_for_and_shown(agent_layer, log):
    file = log(TALK, "", {**TALK, "task_id": "u", "reward": 0})

    status, out, err = agent_layer("store", "import", file, "--run", "old", "--task-type", "math", "--split", "eval")

    assert (status, out) == (0, "2 conversations, 2 of them new, in run old\n"), err
    command = ("query", "--run", "old", "--task-type", "math", "--split", "eval", "--reward", "0.5..")
    [row] = agent_layer(*command, "--format", "jsonl")[1].splitlines()
    found = json.loads(row)
    assert (found["task_id"], found["status"], found["num_steps"], found["accepted"]) == ("t", "completed", 2, False)
    shown = json.loads(agent_layer("show", found["trajectory_id"], "--format", "json")[1])
    assert [step["capture_level"] for step in shown["steps"]] == ["text", "text"]
    assert shown["steps"][1]["state"]["messages"] == TALK["messages"][:3]


def test_importing_twice_is_importing_once(agent_layer, log, settings):
    file = log(TALK)
    agent_layer("store", "import", file)
    store = open_store(settings)
    [row] = store.scan()
    before = (row, store.get(row.trajectory_id), sorted(store.objects.list("")))

    status, out, _ = agent_layer("store", "import", file)

    assert (status, out) == (0, "1 conversation, 0 of them new, in run default\n")
    assert (store.row(row.trajectory_id), store.get(row.trajectory_id), sorted(store.objects.list(""))) == before
    assert store.admin.check().is_sound


def test_what_was_deleted_is_not_imported_again(agent_layer, log, settings):
    file = log(TALK)
    agent_layer("store", "import", file)
    store = open_store(settings)
    [row] = store.scan()
    apply_tombstones(store.redis, store.keys, [row.trajectory_id], 1.0)

    assert agent_layer("store", "import", file)[1] == "1 conversation, 0 of them new, in run default\n"
    assert list(store.scan()) == []


def test_a_line_that_is_no_conversation_is_named_and_nothing_is_imported(agent_layer, log, settings):
    status, _, err = agent_layer("store", "import", log(TALK, TALK, '{"messages": "x"}'))

    assert status == 2
    assert "line 3: expected 'messages'" in err
    assert "Traceback" not in err
    assert list(open_store(settings).scan()) == []


@pytest.mark.parametrize("lines", [[], [""]])
def test_a_file_without_conversations_is_refused(agent_layer, log, lines):
    status, _, err = agent_layer("store", "import", log(*lines))

    assert status == 2
    assert "expected at least one conversation" in err


def test_a_file_that_is_not_there_is_one_sentence(agent_layer, tmp_path):
    status, _, err = agent_layer("store", "import", tmp_path / "none")

    assert status == 2
    assert "expected a readable file" in err


def test_a_missing_bucket_is_named_before_anything_is_written(agent_layer, log, settings, s3_endpoint, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_OBJECTS_URL", "s3://no-such-bucket/prefix")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)

    status, out, err = agent_layer("store", "import", log(TALK))

    assert (status, out) == (2, "")
    assert "object store s3://no-such-bucket/prefix" in err
    assert "create the bucket" in err
    assert len(err.splitlines()) == 1
    assert not [path for path in settings.log_dir.glob("*-*") if path.stat().st_size]


def test_what_was_imported_can_be_exported(agent_layer, log, tmp_path):
    agent_layer("store", "import", log(TALK))

    assert agent_layer("store", "export", "verl", tmp_path / "f.parquet")[1].startswith("1 task")
    assert agent_layer("store", "export", "parquet", tmp_path / "d")[1].startswith("1 trajectory")
