"""Rounds over a real gateway, queue, worker and engine."""

import signal
import sys
from collections import Counter

import msgspec
import pytest

from agent_layer.dispatcher import connect
from agent_layer.infra.processes.supervised import MAX_LOG_BYTES
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.store import open_store

from ...waiting import communicate
from ..sandbox.leftovers import is_alive, list_descendants


def accepted(settings, run):
    """Number of rollouts that count, by task."""
    return Counter(row.task_id for row in open_store(settings).scan(run=run, accepted=True, reward=(0.0, None)))


def test_a_round_is_stored_and_a_command_that_does_worse_is_a_regression(
    settings, folder, run_eval, agent_layer, monkeypatch
):
    with serve_in_thread(ScriptedEngine()) as engine:
        model = ("--model", f"{engine.url}/v1", "-n", "2")
        status, (good, *tasks), message = run_eval(
            settings, "eval_agents:agent", "tasks.jsonl", *model, "--round", "good"
        )
        assert status == 0, message
        worse = ("tasks.jsonl", *model, "--round", "bad", "--against", "good", "--max-drop", "0.1")
        status, (bad, *_, comparison), message = run_eval(settings, *worse, "--", sys.executable, "command.py")

    assert (good["state"], good["run"], good["model"]["name"]) == ("complete", "eval.good", "scripted")
    figures = good["figures"]
    assert [(one["k"], one["estimate"]["value"]) for one in figures["pass_at"]] == [(1, 1.0), (2, 1.0)]
    assert (figures["num_rewards"], figures["num_asked"], figures["causes"]) == (6, 6, {})
    assert figures["response_tokens"] > 0
    assert [(one["id"], one["rewards"]) for one in tasks] == [(f"t{number}", [1.0, 1.0]) for number in range(3)]
    assert accepted(settings, "eval.good") == {"t0": 2, "t1": 2, "t2": 2}

    assert status == 1
    assert "pass@1 fell by 0.333 against 'good'" in message
    assert (comparison["kind"], comparison["num_losses"], comparison["num_ties"]) == ("comparison", 1, 2)
    assert [one["id"] for one in comparison["worse"]] == ["t0"]
    assert bad["figures"]["num_without_call"] == 6

    monkeypatch.chdir(folder)
    check_stored_rounds(agent_layer, figures)


def check_stored_rounds(agent_layer, figures):
    """Show, resume and compare the rounds 'good' and 'bad' without running anything."""
    again = ("eval", "eval_agents:agent", "tasks.jsonl", "--round", "good")
    status, _, errors = agent_layer(*again)
    assert (status, "add --resume to go on" in errors) == (2, True)
    assert agent_layer("eval", "--round", "good", "--resume")[0] == 0
    status, _, errors = agent_layer(*again, "--resume", "-n", "3")
    assert (status, "expected -n 2, with which it began, found 3" in errors) == (2, True)
    status, _, errors = agent_layer(*again, "--resume", "--temperature", "0.5")
    assert (status, "expected sampling {}, with which it began, found {" in " ".join(errors.split())) == (2, True)
    status, printed, _ = agent_layer("eval", "--list", "--format", "jsonl")
    assert [msgspec.json.decode(line)["name"] for line in printed.splitlines()] == ["good", "bad"]
    status, printed, _ = agent_layer("eval", "--round", "good", "--fail-below", "0.9", "--format", "jsonl")
    assert (status, msgspec.json.decode(printed.splitlines()[0])["figures"]) == (0, figures)
    assert agent_layer("eval", "--round", "bad", "--fail-below", "0.9")[0] == 1
    assert agent_layer("eval", "--round", "bad", "--against", "good", "--max-drop", "0.1")[0] == 1
    status, printed, _ = agent_layer("eval", "--round", "bad", "--against", "good", "--max-drop", "0.5")
    assert (status, "t0  1.00 → 0.00" in printed) == (0, True)


def test_a_killed_round_goes_on_and_nothing_counts_twice(stack, folder, start_eval, run_eval, wait_until):
    settings = stack.settings
    command = ("eval_agents:gated", "tasks.jsonl", "-n", "3", "--round", "killed", "--slots", "9")
    killed = start_eval(settings, *command)
    wait_until(lambda: accepted(settings, "eval.killed") == {"t0": 3})
    killed.kill()
    killed.communicate()
    (folder / "gate").touch()

    status, (round_, *tasks), message = run_eval(settings, "--round", "killed", "--resume")

    assert status == 0, message
    assert accepted(settings, "eval.killed") == {"t0": 3, "t1": 3, "t2": 3}
    assert [len(one["rewards"]) for one in tasks] == [3, 3, 3]
    assert round_["figures"]["num_rewards"] == 9
    with connect(settings) as dispatcher:
        (state,) = dispatcher.runs(["eval.killed"])
    assert (state.num_accepted, state.num_queued, state.num_leased) == (9, 0, 0)


@pytest.mark.long
def test_of_a_killed_round_neither_boxes_nor_a_long_log_are_left(stack, folder, start_eval, wait_until):
    (folder / "boxed.jsonl").write_text('{"id": "t0", "input": {}, "sandbox": {"kind": "process"}}\n')
    killed = start_eval(stack.settings, "eval_agents:boxed", "boxed.jsonl", "-n", "1", "--round", "boxed")
    wait_until((folder / "boxed").exists, log=lambda: f"{killed.poll()}")
    log = stack.settings.dir / "runs" / "eval.boxed" / "worker.log"
    wait_until(lambda: log.stat().st_size <= MAX_LOG_BYTES)
    below = list_descendants(killed.pid)

    killed.kill()

    wait_until(lambda: not any(map(is_alive, below)), seconds=5)  # an orderly end may take 10 s


@pytest.mark.long
def test_rollouts_without_a_reward_make_a_round_incomplete_and_are_tried_again(stack, folder, run_eval):
    settings = stack.settings
    (folder / "broken").touch()
    status, (round_, *tasks), message = run_eval(
        settings, "eval_agents:broken", "tasks.jsonl", "-n", "2", "--round", "r"
    )

    assert status == 1
    assert "incomplete, 2 of 6 rollouts have no reward; the last error: RuntimeError: no such tool" in message
    assert round_["state"] == "incomplete"
    assert [len(one["rewards"]) for one in tasks] == [2, 0, 2]
    assert round_["figures"]["causes"] == {"user": 6}
    assert round_["figures"]["pass_at"][0]["estimate"]["value"] == 1.0

    (folder / "broken").unlink()
    status, (round_, *tasks), message = run_eval(settings, "--round", "r", "--resume")

    assert status == 0, message
    assert [one["rewards"] for one in tasks] == [[1.0, 1.0]] * 3
    assert accepted(settings, "eval.r") == {"t0": 2, "t1": 2, "t2": 2}


@pytest.mark.long
def test_a_mended_agent_or_task_goes_on_when_asked_and_what_it_touches_is_redone(stack, folder, run_eval):
    settings = stack.settings
    tasks, agents = folder / "tasks.jsonl", folder / "eval_agents.py"
    tasks.write_text(tasks.read_text().replace('"expected":"word2"', '"expected":"another"'))
    command = ("eval_agents:agent", "tasks.jsonl", "-n", "2", "--round", "r")
    status, (_, *found), message = run_eval(settings, *command)
    assert (status, [one["rewards"] for one in found]) == (0, [[1.0] * 2, [1.0] * 2, [0.0] * 2]), message

    tasks.write_text(tasks.read_text().replace('"expected":"another"', '"expected":"word2"'))
    status, _, message = run_eval(settings, "--round", "r", "tasks.jsonl", "--resume", "-n", "2")
    assert (status, "add --changed to redo what it touches" in message) == (2, True), message
    status, (_, *found), message = run_eval(settings, "tasks.jsonl", "--round", "r", "--resume", "--changed")
    assert (status, [one["rewards"] for one in found]) == (0, [[1.0] * 2] * 3), message
    assert "all rollouts of 1 of 3 tasks are redone" in message
    assert accepted(settings, "eval.r") == {"t0": 2, "t1": 2, "t2": 4}

    agents.write_text(agents.read_text().replace("return float(answer", "return 0.5 * float(answer"))
    again = ("--round", "r", "--resume", "--changed")
    status, (round_, *found), message = run_eval(settings, *again)
    assert (status, [one["rewards"] for one in found]) == (0, [[0.5] * 2] * 3), message
    assert "the agent in version: " in message
    assert round_["figures"]["causes"] == {"changed": 8}
    assert accepted(settings, "eval.r") == {"t0": 4, "t1": 4, "t2": 6}
    status, (_, *found), message = run_eval(settings, *again)
    assert (status, [one["rewards"] for one in found]) == (0, [[0.5] * 2] * 3), message
    assert accepted(settings, "eval.r") == {"t0": 4, "t1": 4, "t2": 6}


def test_an_endpoint_is_evaluated_until_its_cost_is_reached(settings, folder, start_eval, wait_until):
    with serve_in_thread(ScriptedEngine(model="theirs", token_ids=False)) as engine, connect(settings) as dispatcher:
        prices = ("--price-in", "1000000", "--price-out", "0")  # a dollar for each token
        command = ("eval_agents:gated", "tasks.jsonl", "--model", f"{engine.url}/v1", *prices, "--max-cost", "5")
        process = start_eval(settings, "-n", "2", "--slots", "3", "--round", "paid", "--format", "jsonl", *command)
        wait_until(lambda: (state := dispatcher.runs(["eval.paid"])) and state[0].paused is not None)
        (folder / "gate").touch()
        printed, output = communicate(process, 120)

    assert process.returncode == 1, output
    assert "stopped, it cost" in output
    stopped = msgspec.json.decode(printed.splitlines()[0])
    assert stopped["model"] == {**stopped["model"], "kind": "endpoint", "name": "theirs", "location": engine.url}
    figures = stopped["figures"]
    assert figures["num_rewards"] == 2  # each costs 4 dollars; those that ran beside them were refused their call
    assert figures["cost"] == figures["prompt_tokens"] == 8
    assert figures["num_without_call"] == 0


@pytest.mark.long
def test_an_endpoint_that_answers_garbage_is_named_with_what_it_said(settings, pace, run_eval):
    quota = {"error": {"message": "quota used up", "code": 429}}
    with serve_in_thread(ScriptedEngine(model="theirs", token_ids=False, rewrite=lambda *_: quota)) as engine:
        command = ("eval_agents:agent", "tasks.jsonl", "--model", f"{engine.url}/v1", "-n", "1", "--limit", "1")
        status, (round_, *_), message = run_eval(settings.model_copy(update=pace), *command)

    assert (status, round_["state"], round_["figures"]["causes"]) == (1, "incomplete", {"user": 3}), message
    assert "its last model call: engine's answer: expected a chat completion, found 'quota used up'" in message


@pytest.mark.long
def test_an_interrupted_round_lets_rollouts_end_and_says_how_to_go_on(stack, folder, start_eval, wait_until):
    settings = stack.settings
    process = start_eval(settings, "eval_agents:gated", "tasks.jsonl", "-n", "1", "--slots", "2", "--round", "stopped")
    wait_until(lambda: accepted(settings, "eval.stopped") == {"t0": 1})
    process.send_signal(signal.SIGINT)
    with connect(settings) as dispatcher:
        wait_until(lambda: dispatcher.runs(["eval.stopped"])[0].paused is not None)
    (folder / "gate").touch()
    _, output = communicate(process, 120)

    assert process.returncode == 130
    assert "'agent-layer eval --round stopped --resume' goes on" in output
