"""Alarms of real queues, engines and progress files, on the page's API and at /metrics, with the rules over them."""

import asyncio
import json
import re

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent_layer.dispatcher import Report
from agent_layer.engines import Engine, EngineRegistry, register_policy
from agent_layer.health import HealthReader, append_progress, find_unhealthy, progress_path, prometheus_rules
from agent_layer.health.alarm_file import Alarm, AlarmFile, RunAlarms
from agent_layer.health.checks import CHECKS
from agent_layer.health.prometheus import metric_name
from agent_layer.infra.redis.key_table import KEY_FAMILIES
from agent_layer.schema import PolicyVersion, Task
from agent_layer.state import forget_loss, record_loss

from ...queues import Queue
from ...unit.health.reports import report
from ...viewing import Viewed

ENGINE = {"model": "m", "location": "w", "logprobs_mode": "processed", "state": "serving", "epoch": 0}


@pytest.fixture
def queue(redis, keys, settings):
    return Queue(redis, keys, settings, jitter=lambda: 1.0)


@pytest.fixture
def read(redis, settings):
    """Returns the names of what fires in a run, some seconds from now."""

    def read(run, after=0.0):
        (found,) = HealthReader(settings, redis, now=lambda: redis.time()[0] + after).read([run])
        return {one.name for one in found.findings}

    return read


def test_work_of_one_run_waits_while_workers_do_another(queue, read):
    queue.add(Task(id=f"t{at}", run=run) for run in ("fed", "hungry") for at in range(3))
    queue.heartbeat("w", b"{}", [])
    queue.pause("hungry")
    queue.claim("w", 2)
    queue.resume("hungry")

    assert (read("fed", 301), read("hungry", 301), read("hungry", 290)) == (set(), {"starved"}, set())


def test_work_without_an_engine(queue, redis, keys, read):
    registry = EngineRegistry(redis, keys)
    queue.add([Task(id="t", run="r")])
    assert read("r") == set()
    registry.renew_gateway("g")
    assert read("r") == {"no_engine"}
    registry.register(Engine(url="http://e", run="other", version=1, **ENGINE))
    assert read("r") == set()


def test_what_redis_lost_is_named_until_the_index_is_rebuilt(redis, keys, settings):
    record_loss(redis, keys)
    reader = HealthReader(settings, redis)

    (found,) = reader.read(reader.list_runs())[0].findings
    assert found.name == "data_lost"
    assert all(family.loss in found.advice for family in KEY_FAMILIES)
    forget_loss(redis, keys)
    assert reader.list_runs() == []


def test_work_that_no_worker_can_do(queue, redis, settings, read):
    queue.add([Task(id="t", run="r", needs=["gpu"]), Task(id="u", run="r")])
    queue.heartbeat("w", b"{}", [])
    queue.claim("w", 1)

    assert read("r", 200) == {"unserved"}
    (found,) = HealthReader(settings, redis, now=lambda: redis.time()[0] + 200).read(["r"])[0].findings
    assert found.subject == "gpu"
    queue.heartbeat("other", json.dumps({"offers": "gpu net"}).encode(), [])
    assert read("r", 1) == set()


def test_limits_of_the_settings_are_those_of_page_and_rules(fresh, queue, redis):
    queue.add([Task(id="t", run="r0")])
    limited = fresh.settings.model_copy(update={"alarm_limits": "starved=1h stall=off"})
    found = [HealthReader(one, redis, now=lambda: redis.time()[0] + 301) for one in (fresh.settings, limited)]
    names = [[finding.name for finding in reader.read(["r0"])[0].findings] for reader in found]
    assert names == [["starved", "unserved"], ["unserved"]]

    listed = Viewed(fresh.store, limited).get("/api/v1/health/catalogue")["items"]
    assert {one["name"]: one["warn"] for one in listed}["starved"] == 3600
    assert "stall" not in {one["name"] for one in listed}
    rules = prometheus_rules(found[1].checks)
    assert "agent_layer_alarm_starved > 3600" in rules
    assert "agent_layer_alarm_stall" not in rules


def test_rollouts_that_are_given_up(queue, read):
    queue.add(Task(id=f"t{at}", run="r") for at in range(20))
    for lease in queue.claim("w", 20):
        queue.settle([Report(lease=lease, ending="dead", error="infra: away")])

    assert read("r") >= {"lost_tasks", "failing"}


def test_an_engine_that_missed_a_version(redis, keys, settings, read):
    now = redis.time()[0]
    for number in range(3):
        version = PolicyVersion(run="r", number=number, location=f"w{number}", created_at=float(now - 900 + number))
        register_policy(redis, keys, version, lambda _: None)
    registry = EngineRegistry(redis, keys)
    registry.register(Engine(url="http://new", run="r", version=2, **ENGINE))
    assert read("r") == set()
    registry.register(Engine(url="http://old", run="r", version=1, **ENGINE))
    assert read("r") == {"engine_behind"}
    (found,) = HealthReader(settings, redis).read(["r"])[0].findings
    assert (found.subject, found.since) == ("http://old", pytest.approx(now - 898, abs=1))
    registry.change("http://old", is_drained=True)
    assert read("r") == set()


def test_the_page_shows_why_a_run_ended_before_its_last_step_was_done(fresh, redis):
    settings = fresh.settings
    append_progress(progress_path(settings, "r0"), report(1))
    assert fresh.get("/api/v1/runs/r0")["health"]["level"] == "ok"
    stop = msgspec.structs.replace(
        HealthReader(settings, redis).read(["r0"])[0].reports[-1], step=2, ended_at=9.0, num_null_rewards=60
    )
    (finding,) = [one for one in find_unhealthy([stop]) if one.level == "stop"]
    file = AlarmFile(settings, "r0")
    with file.lock():
        file.write(RunAlarms(judged_at=9.0, firing={"null_rewards": Alarm(finding=finding, at=9.0)}))

    health = fresh.get("/api/v1/runs/r0")["health"]

    assert health["level"] == "stop"
    assert health["sentence"].startswith("Rollouts fail without a reward, since step 2. Rollouts without a reward")
    assert {line["run"]: line["health"] for line in fresh.get("/api/v1/runs")["items"]}["r0"] == "stop"


def test_every_metric_of_the_rules_is_at_metrics(fresh, queue, redis, keys):
    """Everything is known of this run: each gauge has a sample, and each rule names such a gauge."""
    now = redis.time()[0]
    for step in range(1, 41):
        done = report(step, metrics={"rejected": 0.1, "entropy": 0.5 + 0.001 * step}, by_task=moving(step))
        append_progress(progress_path(fresh.settings, "r0"), msgspec.structs.replace(done, ended_at=now - 100.0))
    queue.add(Task(id=f"t{at}", run="r0") for at in range(40))
    for number, lease in enumerate(queue.claim("w", 20)):
        queue.settle([Report(lease=lease, ending="completed" if number % 2 else "dead")])
    registry = EngineRegistry(redis, keys, gateway_seconds=600.0)
    registry.register(Engine(url="http://e", run="r0", version=1, **ENGINE))
    registry.renew_gateway("g")

    _, answer = fresh.ask("/metrics")

    families = {one.name: one for one in text_string_to_metric_families(asyncio.run(answer.text()))}
    sampled = {name for name, one in families.items() if any(s.labels.get("run", "r0") == "r0" for s in one.samples)}
    named = set(re.findall(r"expr: (?:absent\()?([a-z_]+)", prometheus_rules()))
    assert answer.content_type == "text/plain"
    assert {metric_name(one.name) for one in CHECKS} <= named
    assert named - sampled == set()


def moving(step):
    return {"a": 0.6, "b": 0.2 + 0.6 * (step % 2), "c": 0.8 - 0.5 * (step % 2)}


def test_rules_have_the_form_that_prometheus_reads():
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load(prometheus_rules())["groups"]

    assert set(group) == {"name", "rules"}
    for rule in group["rules"]:
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", rule["alert"])
        assert re.fullmatch(r"absent\([a-z_]+\)|[a-z_]+ [<>] -?[\d.e+-]+", rule["expr"])
        assert set(rule["annotations"]) == {"summary", "description"}
    limits = sum((one.warn is not None) + (one.stop is not None) for one in CHECKS)
    assert len(group["rules"]) == limits + 1


def test_only_a_key_opens_metrics_beyond_this_machine(viewed):
    settings = viewed.settings.model_copy(update={"metrics_key": "scraper"})
    guarded = Viewed(viewed.store, settings)
    guarded.ask("/metrics", 401, token="t")
    guarded.ask("/metrics", 200, token="t", headers={"Authorization": "Bearer scraper"})
    guarded.ask("/api/v1/runs", 401, token="t", headers={"Authorization": "Bearer scraper"})
