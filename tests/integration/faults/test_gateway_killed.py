"""A gateway that is killed loses no step: not the answered ones, nor those under way; none is accepted."""

import json
import signal
import threading
import urllib.request
from http.client import HTTPConnection
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import pytest

from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.local.stack import run_stack, start_gateway
from agent_layer.store.store import open_store
from trainer_adapter.data.samples import samples_of

from ...waiting import join, scaled
from .conftest import await_shipped


@pytest.fixture
def slow_to_ship(settings):
    """Nothing is shipped before the kill."""
    return settings.model_copy(update={"log_roll_seconds": 60.0})


@pytest.mark.parametrize("stream", [False, True])
def test_killed_right_after_an_answer(settings, slow_to_ship, make_client, kill, stream):
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(slow_to_ship, engine.url) as stack:
        client = make_client(stack)
        opened = client.open()
        if stream:
            url, body = f"{opened['base_url']}/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}
            headers = {"Authorization": f"Bearer {opened['api_key']}", "Content-Type": "application/json"}
            request = urllib.request.Request(url, json.dumps(body | {"stream": True}).encode(), headers)
            with urllib.request.urlopen(request, timeout=scaled(30)) as reply:
                assert any(line.startswith(b"data: [DONE]") for line in reply)
        else:
            client.ask(opened, "hi")
        kill(stack.processes["gateway"])

        store = open_store(settings)
        await_shipped(settings)
        trajectory = store.get(opened["trajectory_id"])

    (step,) = trajectory.steps
    assert step.status == "ok"
    assert list(step.action.response_token_ids) == engine.calls[-1].token_ids[0]
    assert trajectory.accepted is trajectory.outcome is None


def test_killed_between_the_engines_receipt_and_its_answer(settings, slow_to_ship, wait_until, make_client, kill):
    engine = ScriptedEngine(script=lambda prompt: "word " * (1000 if prompt.text == "slow" else 1), token_seconds=0.01)
    with serve_in_thread(engine), run_stack(slow_to_ship, engine.url) as stack:
        client = make_client(stack)
        opened, failures = client.open(), []
        client.ask(opened, "quick")

        def ask() -> None:
            try:
                client.ask(opened, "slow")
            except (URLError, OSError) as error:
                failures.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: engine.num_running == 1)
        kill(stack.processes["gateway"])
        join(asking)

        store = open_store(settings)
        await_shipped(settings)
        trajectory = store.get(opened["trajectory_id"])

    assert len(failures) == 1
    assert [step.status for step in trajectory.steps] == ["ok", None]
    taken = samples_of(trajectory)
    assert sum(sum(sample.loss_mask) for sample in taken.samples) == len(trajectory.steps[0].action.response_token_ids)
    assert [drop.reason for drop in taken.drops] == ["unfinished"]


def test_the_next_gateway_takes_another_attempt_and_the_first_stays_unaccepted(settings, make_client, kill, free_port):
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(settings, engine.url, port=free_port) as stack:
        client = make_client(stack)
        first = client.open(rollout_id="again", attempt=0)
        client.ask(first, "one")
        kill(stack.processes["gateway"])
        _, stack.processes["gateway"] = start_gateway(stack.settings, free_port)
        try:
            with pytest.raises(HTTPError, match="401"):
                client.ask(first, "two")
            second = client.open(rollout_id="again", attempt=1)
            client.ask(second, "one")
            assert client.end(second, reward=1.0)["accepted"]
        finally:
            stack.processes["gateway"].stop()

        store = open_store(settings)
        await_shipped(settings)
        rows = {row.trajectory_id: row for row in store.query(run="r").items}
    assert {row.num_steps for row in rows.values()} == {1}
    assert [rows[one["trajectory_id"]].accepted for one in (first, second)] == [False, True]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_whose_client_hangs_up_is_aborted_and_never_trained(settings, wait_until, make_client, stream):
    engine = ScriptedEngine(script=lambda prompt: "word " * (1000 if prompt.text == "slow" else 1), token_seconds=0.01)
    with serve_in_thread(engine), run_stack(settings, engine.url) as stack:
        client = make_client(stack)
        opened = client.open()
        client.ask(opened, "quick")
        hang_up(opened, {"messages": [{"role": "user", "content": "slow"}], "stream": stream}, engine, wait_until)
        wait_until(lambda: engine.num_running == 0)
        assert client.end(opened, reward=1.0)["accepted"]
        trajectory = open_store(settings).get(opened["trajectory_id"])

    assert [step.status for step in trajectory.steps] == ["ok", "aborted"]
    assert [drop.reason for drop in samples_of(trajectory).drops] == ["aborted"]


def hang_up(opened, body, engine, wait_until) -> None:
    """Ask, and close the connection while the engine is at it."""
    parts = urlsplit(opened["base_url"])
    connection = HTTPConnection(parts.netloc, timeout=scaled(30))
    headers = {"Authorization": f"Bearer {opened['api_key']}", "Content-Type": "application/json"}
    connection.request("POST", f"{parts.path}/chat/completions", json.dumps(body), headers)
    wait_until(lambda: engine.num_running == 1)
    if body["stream"]:
        connection.getresponse().readline()
    connection.close()


@pytest.mark.long
def test_a_frozen_redis_stops_calls_only_when_the_board_is_too_old_and_then_they_go_on(
    settings, wait_until, make_client, own_redis
):
    settings = settings.model_copy(
        update={"redis_url": own_redis.url, "gateway_seconds": scaled(3.0), "retry_seconds": scaled(60.0)}
    )
    with serve_in_thread(ScriptedEngine()) as engine, run_stack(settings, engine.url) as stack:
        client = make_client(stack)
        opened = client.open()
        client.ask(opened, "before")
        own_redis.send(signal.SIGSTOP)
        client.ask(opened, "allowed")
        wait_until(lambda: not is_answered_soon(client, opened))
        waiting = threading.Thread(target=client.ask, args=(opened, "waits"), kwargs={"seconds": 60})
        waiting.start()
        assert len(client.open()["api_key"]) > 10  # requests that need no Redis still succeed
        own_redis.send(signal.SIGCONT)
        join(waiting)
        assert client.end(opened, reward=1.0)["accepted"]

        trajectory = open_store(settings).get(opened["trajectory_id"])
        texts = [json.loads(trajectory.contents[step.state.messages[0]])["content"] for step in trajectory.steps]
    assert {"before", "allowed", "waits"} <= {*texts}
    assert [step.status for step in trajectory.steps].count("ok") >= 3


def is_answered_soon(client, opened) -> bool:
    try:
        return bool(client.ask(opened, "soon", seconds=1.0))
    except (TimeoutError, URLError):
        return False
