"""One of several gateway processes is killed under load: its rollouts are run again, and no finished step is lost."""

import gzip
import json
import os
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count

import pytest

from agent_layer.engines.join import register_engine
from agent_layer.gateway.http.peers import owner_slot
from agent_layer.local.gateway_processes import GatewayProcesses
from agent_layer.local.operator_key import ensure_api_key
from agent_layer.local.scripted.engine import ScriptedEngine
from agent_layer.local.scripted.serving import serve_in_thread
from agent_layer.recorder.shipping import ensure_shipper
from agent_layer.store.store import open_store

from ...processes import find_pid
from ...waiting import scaled, wait_until
from .conftest import post

NUM_ROLLOUTS, NUM_CALLS = 24, 4
OUTPUT = {"messages": [{"role": "user", "content": "hello"}]}


@contextmanager
def two_processes(settings, redis, engine=None):
    mine = ensure_api_key(settings)
    with serve_in_thread(engine or ScriptedEngine()) as served:
        register_engine(mine, redis, served.url)
        with GatewayProcesses(settings=mine, host="127.0.0.1", port=0, num_processes=2) as gateway:
            yield gateway, mine.api_key


def say(opened, text):
    body = {"messages": [{"role": "user", "content": text}]}
    return post(f"{opened['base_url']}/chat/completions", body, opened["api_key"])


def run_rollout(gateway, key, number, answered):
    """Try until an attempt ends well; note each answer that was seen."""
    attempts = count()

    def run_attempt():
        attempt = next(attempts)
        try:
            about = {"task_id": "t", "run": "r", "rollout_id": f"roll.{number}", "attempt": attempt}
            opened = post(f"{gateway.url}/rollouts", about, key)
            for call in range(NUM_CALLS):
                say(opened, f"call {call}")
                answered.append(opened["trajectory_id"])
            return post(f"{gateway.url}/rollouts/roll.{number}/end", {"attempt": attempt, "reward": 1.0}, key)
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.05)  # or twelve who ask at once would keep the processor from the gateway that starts
            return None

    return wait_until(run_attempt, 90, f"an attempt of rollout {number} that ends well")


def test_killed_under_load(settings, redis):
    answered, slow = [], ScriptedEngine(token_seconds=0.02)
    with two_processes(settings, redis, slow) as (gateway, key), ThreadPoolExecutor(12) as pool:
        running = [pool.submit(run_rollout, gateway, key, number, answered) for number in range(NUM_ROLLOUTS)]
        wait_until(lambda: len(answered) > NUM_CALLS * 4)
        victim = find_pid(gateway.processes[0])
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: gateway.check() or all(future.done() for future in running), 120)
        ended = [future.result() for future in running]
        assert find_pid(gateway.processes[0]) != victim

    store = open_store(settings)
    assert all(one["accepted"] for one in ended)
    stored = {name: store.get(name).steps for name in set(answered)}
    assert sum(len(steps) for steps in stored.values()) >= len(answered)
    for name, steps in stored.items():
        finished = [step for step in steps if step.status == "ok"]
        assert len(finished) >= answered.count(name)
    accepted = {one["trajectory_id"] for one in ended}
    assert all(len(stored[name]) == NUM_CALLS for name in accepted)
    lost = {name for name in stored if name not in accepted}
    # The end of a rollout goes to the shared address: the killed process may have been passing it on.
    kept = {name for name in lost if owner_slot(name.rpartition("-")[0], 2) != 0}
    assert all(answered.count(name) == NUM_CALLS for name in kept)


def open_several(gateway, key, number):
    """Open rollouts whose names belong to both processes: of random names all could belong to one."""
    about = [{"task_id": "t", "rollout_id": f"{n}.shared", "attempt": 0} for n in range(number)]
    return [post(f"{gateway.url}/rollouts", one, key) for one in about]


def test_the_shared_address_reaches_every_rollout(settings, redis):
    ensure_shipper(settings)
    with two_processes(settings, redis) as (gateway, key):
        opened = open_several(gateway, key, 16)
        assert len({one["base_url"].split("/")[2] for one in opened}) == 2
        for one in opened:
            shared = {**one, "base_url": f"{gateway.url}/r/{one['trajectory_id']}/v1"}
            assert say(shared, "hello")["choices"][0]["message"]["content"] == "you said: hello"
        names = [one["trajectory_id"] for one in opened]
        renewed = post(f"{gateway.url}/rollouts/renew", {"trajectory_ids": [*names, "no-0"], "lease_seconds": 60}, key)
        closed = [post(f"{gateway.url}/rollouts/{one['rollout_id']}/close", {"attempt": 0}, key) for one in opened]

    assert renewed["unknown"] == ["no-0"]
    assert [(one["started"], one["ended"]) for one in closed] == [(1, 1)] * 16


def test_an_attempt_changes_hands_through_the_shared_address(settings, redis):
    ensure_shipper(settings)
    with two_processes(settings, redis) as (gateway, key):
        for number in range(4):
            about = {"task_id": "t", "rollout_id": f"{number}.hand", "attempt": 0, "owner": "worker"}
            first = post(f"{gateway.url}/rollouts", about, key)
            holder = {"attempt": 0, "key": first["api_key"]}
            mark = post(f"{gateway.url}/rollouts/{number}.hand/mark", holder, key)
            say(first, "hello")
            post(f"{gateway.url}/rollouts/{number}.hand/pause", holder, key)
            second = post(f"{gateway.url}/rollouts", {**about, "resume": {"calls": mark["calls"]}}, key)
            say(second, "hello")
            closed = post(f"{gateway.url}/rollouts/{number}.hand/close", {"key": second["api_key"]}, key)
            assert (len(second["abandoned"]), closed["started"], closed["ended"]) == (1, 2, 2)

    store = open_store(settings)
    steps = [step.status for number in range(4) for step in store.get(f"{number}.hand-0").steps]
    assert sorted(steps) == ["aborted"] * 4 + ["ok"] * 4
    assert {owner_slot(f"{number}.hand", 2) for number in range(4)} == {0, 1}


@pytest.mark.long
def test_what_nobody_waits_for_ends_in_the_engine_through_the_shared_address_too(settings, redis):
    with two_processes(settings, redis, engine := ScriptedEngine()) as (gateway, key):
        opened = open_several(gateway, key, 8)
        assert len({one["base_url"].split("/")[2] for one in opened}) == 2
        engine.token_seconds = 600.0
        for one in opened:
            connection = HTTPConnection("127.0.0.1", gateway.port)
            headers = {"Authorization": f"Bearer {one['api_key']}", "Content-Type": "application/json"}
            connection.request("POST", f"/r/{one['trajectory_id']}/v1/chat/completions", json.dumps(OUTPUT), headers)
            wait_until(lambda: engine.num_running == 1)
            connection.close()
            wait_until(lambda: engine.num_running == 0)
        ends = [post(f"{gateway.url}/rollouts/{one['rollout_id']}/close", {}, key) for one in opened]

    assert [(one["started"], one["ended"]) for one in ends] == [(1, 1)] * 8


@pytest.mark.long
def test_a_compressed_body_arrives_through_the_shared_address_too(settings, redis):
    with two_processes(settings, redis) as (gateway, key):
        opened = open_several(gateway, key, 8)
        for one in opened:
            url = f"{gateway.url}/r/{one['trajectory_id']}/v1/chat/completions"
            headers = {"x-api-key": one["api_key"], "Content-Encoding": "gzip"}
            request = urllib.request.Request(url, gzip.compress(json.dumps(OUTPUT).encode()), headers)
            with urllib.request.urlopen(request, timeout=scaled(30)) as reply:
                assert reply.status == 200


def test_a_stranger_gets_no_further_through_the_shared_address(settings, redis):
    with two_processes(settings, redis) as (gateway, _), pytest.raises(urllib.error.HTTPError, match="401"):
        post(f"{gateway.url}/rollouts", {"task_id": "t", "rollout_id": "any"}, "wrong")
