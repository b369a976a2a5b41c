"""The API of the page: its numbers are those that Python computes from the store; it only reads, for its own page."""

import asyncio
import json
from collections import Counter
from statistics import fmean

import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from agent_layer.health import append_progress, progress_path
from agent_layer.infra.lines import append_line
from agent_layer.schema.contamination.held_out import AuditVerdict, HeldOutMatch, HeldOutSet, LeftOutTask
from agent_layer.schema.reward import Reward
from agent_layer.schema.training import TrainedBatch, TrainedRollout
from agent_layer.view import build_view_app

from ...builders import attempt
from ...stored import damage, write_segment
from ...unit.health.reports import report
from ...viewing import API_KEY, GROUP_SIZE, NUM_ENGINES, SECRET

_TRAINED_COLUMNS = ("texts", "sampled", "steps", "logprobs", "trained_logprobs", "advantages", "mask", "versions")


def test_pages_hold_every_trajectory_once_and_name_the_same_query(viewed):
    seen, cursor = [], ""
    while cursor is not None:
        page = viewed.get(f"/api/v1/query?run=r0&order=reward&limit=5&cursor={cursor}")
        seen += [row["trajectory_id"] for row in page["items"]]
        cursor = page["cursor"]
    assert seen == [row.trajectory_id for row in viewed.store.query(run="r0", order="reward", limit=500).items]
    assert len(seen) == len(set(seen)) > 5
    assert page["command"] == "agent-layer query --run r0 --order reward --limit 5"
    assert "run='r0'" in page["python"]


def test_counts_facets_and_histogram_are_what_python_counts(viewed):
    rows = viewed.store.query(limit=500).items
    facets = viewed.get("/api/v1/facets")["facets"]
    for field in ("run", "status", "task_type"):
        assert {line["value"]: line["count"] for line in facets[field]} == Counter(getattr(row, field) for row in rows)
    engines = Counter(engine for row in rows for engine in row.engines)
    assert {line["value"]: line["count"] for line in facets["engine"]} == engines
    assert len(engines) == NUM_ENGINES
    engine, num = engines.most_common(1)[0]
    found = viewed.get(f"/api/v1/query?engine={engine.removeprefix('http://')}&limit=100")["items"]
    assert [engine in row["engines"] for row in found] == [True] * num
    bins = viewed.get("/api/v1/histogram?bins=7")
    rewards = [row.reward for row in rows if row.reward is not None]
    assert bins["num_rewarded"] == len(rewards)
    assert bins["num_without"] == len(rows) - len(rewards)
    for one in bins["bins"]:
        assert one["count"] == sum(one["low"] <= reward < one["high"] for reward in rewards)
        assert viewed.get(f"/api/v1/count?reward={one['filters']['reward']}")["count"] == one["count"]


def test_a_run_counts_its_own(viewed):
    rows = [row for row in viewed.store.query(limit=500).items if row.run == "r1"]
    answer = viewed.get("/api/v1/runs/r1")
    accepted = [row for row in rows if row.accepted]
    assert answer["counts"]["trajectories"] == len(rows)
    assert answer["counts"]["accepted"] == len(accepted)
    assert answer["counts"]["mean_reward"] == pytest.approx(fmean(row.reward for row in accepted))
    assert answer["counts"]["success_rate"] == pytest.approx(fmean(row.reward > 0 for row in accepted))
    assert {row["trajectory_id"] for row in answer["failures"]} == {
        r.trajectory_id for r in rows if r.status == "failed"
    }
    assert {line["run"]: line["num_trajectories"] for line in viewed.get("/api/v1/runs")["items"]}["r1"] == len(rows)
    viewed.get("/api/v1/runs/none", 404)


def test_runs_are_listed_by_their_newest_trajectory_with_what_python_counts(fresh):
    write_segment(fresh.store, *attempt("n.0-0", at=9000.0, run="new", status="running"))
    write_segment(fresh.store, *attempt("r.0-0", at=1.0, run="old", split="eval", score=0.25))
    rows = fresh.store.query(limit=500).items

    lines = fresh.get("/api/v1/runs")["items"]

    assert [line["run"] for line in lines] == ["new", "r1", "r0", "old"]
    for line in lines:
        own = [row for row in rows if row.run == line["run"]]
        rewards = [row.reward for row in own if row.accepted and row.reward is not None]
        assert line["num_trajectories"] == len(own)
        assert line["num_accepted"] == sum(row.accepted for row in own)
        assert line["num_rewarded"] == len(rewards)
        assert line["mean_reward"] == (pytest.approx(fmean(rewards)) if rewards else None)
        assert line["success_rate"] == (fmean(reward > 0 for reward in rewards) if rewards else None)
        assert line["newest_started_at"] == max(row.started_at for row in own)
        assert line["is_evaluation"] == (line["run"] == "old")


@pytest.mark.parametrize("size", [1, 3, 50])
def test_tokens_in_ranges_are_those_of_the_steps(viewed, size):
    """Of a trajectory each step lays down what it adds; of a step, the whole prompt and the answer."""
    name = "g2.1-0"
    whole = viewed.store.get(name)
    laid = [one for step in whole.steps for one in (*step.prompt.delta, *step.action.response_token_ids)]
    assert _all_ids(viewed, f"/api/v1/trajectories/{name}/tokens", size) == laid
    last = whole.steps[1]
    assert _all_ids(viewed, f"/api/v1/trajectories/{name}/steps/1/tokens", size) == [
        *last.prompt_token_ids,
        *last.action.response_token_ids,
    ]
    viewed.get(f"/api/v1/trajectories/{name}/steps/2/tokens", 404)


def _all_ids(viewed, path, size):
    ids, total = [], 1
    while len(ids) < total:
        answer = viewed.get(f"{path}?from={len(ids)}&to={len(ids) + size}")
        total = answer["total"]
        assert {len(answer[column]) for column in _TRAINED_COLUMNS} == {len(answer["ids"])}
        for at, token_id in enumerate(answer["ids"]):
            is_cut = token_id == 9
            assert answer["texts"][at] == (None if is_cut else "abcdefghi"[token_id])
            assert answer["part_bytes"].get(str(len(ids) + at)) == ("e2" if is_cut else None)
            assert answer["logprobs"][at] == (-0.5 if answer["sampled"][at] else None)
        ids += answer["ids"]
    return ids


def test_an_update_shows_what_it_learned_from_and_what_it_left_out(viewed):
    num = sum(len(step.action.response_token_ids) for step in viewed.store.get("g0.0-0").steps)
    answer = viewed.get("/api/v1/runs/r0/updates/1")
    lanes = {lane["trajectory_id"]: lane for lane in answer["rollouts"]}
    assert (lanes["g0.0-0"]["num_tokens"], lanes["g0.0-0"]["num_trained"]) == (num, num - 1)
    assert lanes["g0.0-0"]["advantage"] == 0.5
    assert lanes["g0.1-0"]["reward_now"] == viewed.store.row("g0.1-0").reward
    assert [one["trajectory_id"] for one in answer["excluded"]] == ["g0.2-0"]
    assert [one["reward_mean"] for one in viewed.get("/api/v1/runs/r0/updates")["items"]] == [0.75, 0.75]
    assert viewed.get("/api/v1/runs/r0/progress")["numbers"]["reward_mean"] == [0.75, 0.75]
    tokens = viewed.get("/api/v1/trajectories/g0.0-0/tokens")
    assert [one for one in tokens["mask"] if one is not None] == [*[1] * (num - 1), 0]
    assert {one for one in tokens["trained_logprobs"] if one is not None} == {-0.25}
    assert [part["update"] for part in tokens["parts"]] == [2, 2]
    viewed.get("/api/v1/runs/r0/updates/3", 404)


def test_a_damaged_rollout_says_so_wherever_it_stands_beside_others(fresh):
    rollouts = [
        TrainedRollout(trajectory_id=f"g0.{at}-0", group_id="g0", reward=1.0, reward_ids=[], samples_hash="")
        for at in range(2)
    ]
    own = {"run": "r0", "batch_id": "b", "step": 1, "policy_version": 1}
    write_segment(fresh.store, TrainedBatch(**own, trained_at=9.0, rollouts=rollouts, num_samples=2, batch_hash=""))
    failed = next(row.trajectory_id for row in fresh.store.query(status="failed").items)
    for name in ("g0.1-0", failed):
        damage(fresh.store, name)

    attributes = {one["row"]["trajectory_id"]: one["damaged"] for one in fresh.get("/api/v1/groups/g0")["members"]}
    assert [name for name, why in attributes.items() if why] == ["g0.1-0"]
    assert "g0.1-0" in attributes["g0.1-0"]
    lanes = fresh.get("/api/v1/runs/r0/updates/1")["rollouts"]
    assert [lane["damaged"] for lane in lanes] == [None, attributes["g0.1-0"]]
    assert lanes[1]["reward_now"] == fresh.store.row("g0.1-0").reward
    diff = fresh.get("/api/v1/diff?a=g0.0-0&b=g0.1-0")
    assert (diff["damaged"], diff["steps"], diff["first_token"]) == ({"b": attributes["g0.1-0"]}, [], None)
    assert fresh.get("/api/v1/diff?a=g0.0-0&b=g0.2-0")["damaged"] == {}
    kinds = {one["kind"]: one for one in fresh.get("/api/v1/failures")["errors"]}
    assert kinds["its trajectory is damaged, so its error is not known"]["examples"] == [failed]


def test_a_step_without_an_update_says_why(fresh):
    path = progress_path(fresh.settings, "r0")
    append_progress(path, report(1, num_samples=0, num_dead_groups=5, num_null_rewards=2, untrainable={"greedy": 3}))
    append_progress(path, report(2, num_samples=7))

    reported = [fresh.get(f"/api/v1/runs/r0/updates/{step}", 404)["error"]["message"] for step in range(4)]

    assert "updates count from 1" in reported[0]
    assert reported[1].endswith(
        "nothing of this step could be trained: 5 groups have equal rewards and teach nothing, 2 rollouts have no"
        " reward, 3 rollouts cannot be trained exactly (3 greedy)"
    )
    assert "expected its batch of 7 samples in the store" in reported[2]
    assert reported[3].endswith("it is not made yet; the newest is 2")


def test_a_run_tells_what_of_held_out_tasks_was_found(fresh):
    directory = fresh.settings.dir / "runs" / "r0"
    match = HeldOutMatch(level="text", taskset="bench", task_id="h1")
    verdict = AuditVerdict(
        step=2, audited_at=0.0, is_proven=True, num_held_out=50, num_learned=0, num_near=0, learned_share=0.0
    )
    learned = msgspec.structs.replace(verdict, is_proven=False, num_learned=2, num_near=1, learned_share=0.0125)

    def read():
        return fresh.get("/api/v1/runs/r0")["held_out"]

    assert read() is None
    append_line(directory / "held_out.jsonl", HeldOutSet(name="bench"))
    assert (read()["level"], "No audit was made" in read()["sentence"]) == ("unknown", True)
    append_line(directory / "left_out.jsonl", LeftOutTask(source="s", task_id="t1", match=match))
    assert "1 task. The first, t1, has the text of held-out task h1 of bench." in read()["sentence"]
    append_line(directory / "audit.json", verdict)
    assert (read()["level"], "proved that none was learned" in read()["sentence"]) == ("ok", True)
    (directory / "audit.json").unlink()
    append_line(directory / "audit.json", learned)
    assert read()["level"] == "warn"
    assert "found that 2 were learned, with 1.25% of the trained tokens" in read()["sentence"]
    assert "near-duplicates that were not refused: 1." in read()["sentence"]


def test_an_evaluation_says_that_it_is_one(fresh):
    for name, split in (("e.0-0", "eval"), ("e.1-0", "eval"), ("m.0-0", "eval"), ("m.1-0", "train")):
        write_segment(fresh.store, *attempt(name, run=name[0], score=float(name[2] == "0"), split=split))

    kinds = {line["run"]: line["is_evaluation"] for line in fresh.get("/api/v1/runs")["items"]}
    assert kinds == {"r0": False, "r1": False, "e": True, "m": False}
    answer = fresh.get("/api/v1/runs/e")
    assert answer["is_evaluation"]
    assert answer["health"]["sentence"] == (
        "An evaluation of 2 trajectories, from which no update learns: success 50 %."
    )


def test_a_group_shows_its_members_and_a_later_reward(fresh):
    later = Reward(trajectory_id="g1.0-0", reward_id="later", run="r1", at=9e8, score=7.0, supersedes="g1.0-0/r")
    write_segment(fresh.store, later)
    answer = fresh.get("/api/v1/groups/g1")
    assert [one["row"]["trajectory_id"] for one in answer["members"]] == [f"g1.{at}-0" for at in range(GROUP_SIZE)]
    assert [one["reward"] for one in answer["members"]] == [fresh.store.row(f"g1.{at}-0").reward for at in range(4)]
    assert answer["members"][0]["reward"] == 7.0
    shown = fresh.get("/api/v1/trajectories/g1.0-0")
    assert {one["reward_id"]: one["is_current"] for one in shown["rewards"]} == {"g1.0-0/r": False, "later": True}
    assert shown["siblings"]["position"] == 0
    assert len(shown["steps"]) == 2
    assert shown["steps"][1]["parent"] == 0
    fresh.get("/api/v1/groups/none", 404)


def test_the_grading_is_for_operators_alone(viewed):
    path = "/api/v1/trajectories/g0.0-0"
    assert SECRET not in json.dumps(viewed.get(path))
    assert SECRET not in json.dumps(viewed.get(path, Authorization="Bearer wrong"))
    assert viewed.get(path, Authorization=f"Bearer {API_KEY}")["task"]["grading"] == SECRET
    assert viewed.get(path)["task"]["input"] == "what?"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "10.0.0.1:8792"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_other_sites_get_nothing(viewed, headers):
    answer, _ = viewed.ask("/api/v1/runs", 403, headers=headers)
    assert answer["error"]["code"] == "forbidden"


@pytest.mark.parametrize("token", [None, "right"])
def test_a_header_that_names_no_host_is_refused_with_a_sentence(viewed, token):
    for host in ("localhost:99999999", "localhost:0", "localhost:x", "[::1", "", "a@"):
        path = "/api/v1/info"
        answer, _ = viewed.ask(path, 400, token=token, headers={"Host": host, "Authorization": "Bearer right"})
        assert answer["error"]["code"] == "bad_input"


def test_a_path_that_is_no_file_of_the_page_is_told_so(viewed):
    for name in ("%00", "css/%00.css", "%0d%0aX:%20y", "..%2f..%2fapp.py", "%ff", "css", "a" * 4_000):
        answer, headers = viewed.ask(URL(f"/{name}", encoded=True), 404)
        assert answer["error"]["code"] == "not_found"
        assert "X" not in headers.headers


def test_it_only_reads_and_says_so_in_headers(viewed):
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        viewed.get("/api/v1/runs", 405, method=method)
    _, answer = viewed.ask("/api/v1/info")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_browser_does_not_fetch_a_file_again_that_it_has(viewed):
    first = viewed.ask("/app.js")[1]
    tag, length = first.headers["ETag"], int(first.headers["Content-Length"])
    _, again = viewed.ask("/app.js", 304, headers={"If-None-Match": tag})
    _, plain = viewed.ask("/app.js", headers={"Accept-Encoding": "identity", "If-None-Match": 'W/"other"'})

    assert first.headers["Content-Encoding"] == "gzip"
    assert 2 * length < int(plain.headers["Content-Length"])
    assert "Content-Encoding" not in plain.headers
    assert again.headers["ETag"] == plain.headers["ETag"] == tag
    assert first.headers["Cache-Control"] == "private, no-cache"
    assert viewed.ask("/api/v1/info")[1].headers["Cache-Control"] == "no-store"


def test_what_follows_from_the_index_is_sent_again_only_after_a_change(fresh):
    async def ask():
        async with TestClient(TestServer(build_view_app(fresh.source))) as client:
            path, tag, nums = "/api/v1/histogram?run=r0", "none", []
            later = Reward(trajectory_id="late.0-0", reward_id="late", run="r0", at=9e3, score=0.5)
            begun = attempt("late.0-0", at=9000.0, run="r0", status="running", score=None)
            for change in ((), (), begun, (later,), ()):
                if change:
                    write_segment(fresh.store, *change)
                answer = await client.get(path, headers={"If-None-Match": tag})
                tag = answer.headers["ETag"]
                body = await answer.json() if answer.status == 200 else None
                nums.append(body and (body["num_rewarded"], body["num_without"]))
            assert "ETag" not in (await client.get("/api/v1/runs")).headers
            assert "ETag" not in (await client.get(f"{path}&since=2h")).headers
            return nums

    num_rewarded, num_without = fresh.store.count(run="r0", reward=(-9.0, None)), fresh.store.count(run="r0")
    num_without -= num_rewarded
    assert asyncio.run(ask()) == [
        (num_rewarded, num_without),
        None,
        (num_rewarded, num_without + 1),
        (num_rewarded + 1, num_without),
        None,
    ]


def test_a_reward_of_a_trajectory_that_goes_on_is_announced_once_it_can_be_seen(fresh):
    redis, steps = fresh.store.redis, fresh.store.keys.steps
    write_segment(fresh.store, *attempt("on.0-0", run="r0", status="running"))
    ((before, _),) = redis.xrevrange(steps, count=1) or ((b"-", {}),)

    write_segment(fresh.store, Reward(trajectory_id="on.0-0", reward_id="r", run="r0", at=9.0, score=0.5))

    reported = [fields for at, fields in redis.xrange(steps, before) if at != before]
    assert [msgspec.msgpack.decode(one[b"grown"]) for one in reported] == [[["on.0-0", "r0"]]] * 2


def test_beyond_this_machine_it_needs_the_token(viewed):
    viewed.get("/api/v1/runs", 401, token="right")
    viewed.get("/api/v1/runs?token=wrong", 401, token="right")
    viewed.get("/api/v1/runs", 200, token="right", Authorization="Bearer right")
    _, answer = viewed.ask("/?token=right", 303, token="right")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


_WRONG = [
    "query?colour=red",
    "query?limit=0",
    "query?reward=x..",
    "query?step=x",
    "query?label=x",
    "query?status=odd",
    "query?cursor=x",
    "query?run=a&run=b",
    "facets?fields=reward",
    "trajectories/g0.0-0/steps/x",
]


@pytest.mark.parametrize("path", _WRONG)
def test_what_is_wrong_is_said_in_one_sentence(viewed, path):
    error = viewed.get(f"/api/v1/{path}", 400)["error"]
    assert error["code"] == "bad_input"
    assert "expected" in error["message"]


@pytest.mark.parametrize(
    "path", ["/api/v1/none", "/../settings/settings.py", "/%2e%2e/app.py", "/app.py", "/trajectories.py"]
)
def test_nothing_but_the_page_is_served(viewed, path):
    viewed.get(path, 404)


def test_words_inside_trajectories_are_found_with_step_and_snippet(viewed):
    questions = [row["trajectory_id"] for row in viewed.get("/api/v1/query?run=r0")["items"]]
    found = viewed.get("/api/v1/search?text=what&run=r0&limit=100")
    assert {one["row"]["trajectory_id"] for one in found["items"]} == set(questions)
    assert {(one["step"], one["where"]) for one in found["items"]} == {(None, "task")}
    assert found["items"][0]["snippet"] == [{"text": "what", "is_match": True}, {"text": "?", "is_match": False}]
    assert (found["num_waiting"], found["left_out"], found["cursor"]) == (0, [], None)
    page = viewed.get("/api/v1/search?text=what&limit=3")
    assert len({one["row"]["trajectory_id"] for one in page["items"]}) == 3
    assert page["cursor"]
    for headers in ({}, {"Authorization": f"Bearer {API_KEY}"}):
        assert viewed.get("/api/v1/search?text=hidden", **headers)["items"] == []
    for path in ("search", "search?text=", "search?text=--", "search?text=a&order=newest", "search?text=a&cursor=b"):
        assert viewed.get(f"/api/v1/{path}", 400)["error"]["code"] == "bad_input"
