"""Writing from the page: only where it is allowed, by its own page and its operator; nothing is overwritten."""

import json
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agent_layer.dispatcher import Dispatcher, parse_tasks
from agent_layer.dispatcher.models import Report
from agent_layer.schema.task import Task
from agent_layer.view import build_view_app
from agent_layer.view.writes.exports import EXPORTS
from agent_layer.view.writes.journal import Journal, WriteLine
from agent_layer.view.writes.routes import WRITES

from ...queues import Queue
from ...viewing import API_KEY, SECRET

_BY = {"Agent-Layer-By": "Ada"}
_TOKEN = {"Authorization": "Bearer secret"}
_REWARD = "/api/v1/trajectories/g0.0-0/rewards"
_LABEL = "/api/v1/trajectories/g0.0-0/labels"
_PATHS = [f"/api/v1{path.format(trajectory='g0.0-0', run='r0', worker='w')}" for path in (*WRITES, *EXPORTS)]


@pytest.fixture
def serve(fresh):
    """``async with serve(...) as client``: a server that allows writes to who has the token 'secret'."""

    @asynccontextmanager
    async def serve(token=None, **options):
        options = {"writable": fresh.store, "operator_token": "secret"} | options
        async with TestClient(TestServer(build_view_app(fresh.source, token, **options))) as client:
            yield client

    return serve


async def _post(client, path, body=None, status=200, headers=_TOKEN, method="POST"):
    sent = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    kept = {"Content-Type": "application/json"} | _BY | headers
    answer = await client.request(method, path, data=sent, headers=kept)
    assert answer.status == status, (path, body, headers, await answer.text())
    return await answer.json()


@pytest.fixture
def post(serve):
    """``await post(path, body)``: order something of a server of its own that allows writes; returns its answer."""

    async def order(path, body=None, status=200, *, headers=_TOKEN, **options):
        async with serve(**options) as client:
            return await _post(client, path, body, status, headers)

    return order


async def _journal(serve, headers=_TOKEN):
    async with serve() as client:
        return (await (await client.get("/api/v1/writes", headers=headers)).json())["items"]


async def test_a_reward_supersedes_and_the_journal_names_who_and_what(post, serve, fresh):
    old = fresh.store.get("g0.0-0").rewards
    given = await post(_REWARD, {"score": 0.125, "comment": "right, but slow"})

    rewards = fresh.store.get("g0.0-0").rewards
    assert [one for one in rewards if one in old] == old
    assert [(one.score, one.source, one.comment, one.supersedes) for one in rewards if one not in old] == [
        (0.125, "human", "right, but slow", "g0.0-0/r")
    ]
    assert fresh.store.row("g0.0-0").reward == 0.125
    assert (given["before"]["score"], given["after"]["score"]) == (old[0].score, 0.125)
    commented = await post(_REWARD, {"comment": "seen twice"})
    assert commented["before"] == {key: given["after"][key] for key in ("reward_id", "name", "score", "source")}
    assert fresh.store.row("g0.0-0").reward == 0.125
    journal = await _journal(serve)
    assert [(one["by"], one["action"], one["subject"]) for one in journal] == [("Ada", "rewards", "g0.0-0")] * 2
    assert journal == [commented, given]
    assert "slow" not in json.dumps(journal)


async def test_a_label_is_a_persons_and_the_journal_names_before_and_after(post, serve):
    given = await post(_LABEL, {"name": "verdict", "value": "wrong", "comment": "read the hint"})
    withdrawn = await post(_LABEL, {"name": "verdict", "value": None})

    assert [(one["before"], one["after"]["value"], one["after"]["labels"]) for one in (given, withdrawn)] == [
        ({"name": "verdict", "value": None}, "wrong", {"verdict": "wrong"}),
        ({"name": "verdict", "value": "wrong"}, None, {}),
    ]
    journal = await _journal(serve)
    assert [(one["by"], one["action"], one["subject"]) for one in journal] == [("Ada", "labels", "g0.0-0")] * 2
    assert journal == [withdrawn, given]
    assert "hint" not in json.dumps(journal)
    async with serve() as client:
        command = (await (await client.get("/api/v1/trajectories/g0.0-0")).json())["given_labels"]
    assert [(one["value"], one["comment"], one["source"], one["is_current"]) for one in command] == [
        ("wrong", "read the hint", "human", False),
        (None, None, "human", True),
    ]


async def test_labels_that_cannot_be_are_refused_and_leave_no_line(serve, fresh):
    before = fresh.store.row("g0.0-0")
    async with serve() as client:
        for body in (
            {"name": "a=b", "value": "x"},
            {"name": "n", "value": "v" * 10_000},
            {"name": "n", "value": 1},
            {"name": "n", "value": None},
            {"name": "n"},
            {"name": "n", "value": "x", "by": "me"},
            b'{"name": "n", "value": "\\ud800"}',
        ):
            error = (await _post(client, _LABEL, body, 400))["error"]
            assert error["code"] == "bad_input"
            assert "xpected" in error["message"]
            assert len(error["message"]) < 600
        none = "/api/v1/trajectories/none/labels"
        assert (await _post(client, none, {"name": "n", "value": "x"}, 404))["error"]["code"] == "not_found"
    assert fresh.store.row("g0.0-0") == before
    assert await _journal(serve) == []


async def test_runs_workers_and_dead_letters_are_steered(post, serve, redis, keys, fresh):
    settings = fresh.settings
    queue, dispatcher = Queue(redis, keys, settings), Dispatcher(redis, settings)
    dispatcher.submit([Task(id=f"t{number}", run="steered", input="x") for number in range(2)], group_size=1)
    leases = queue.claim("w", 2)
    queue.heartbeat("w", b"{}", [])
    queue.settle([Report(lease=lease, ending="dead", error="user: no") for lease in leases])
    first, second = (lease.rollout_id for lease in leases)

    paused = await post("/api/v1/runs/steered/pause", {"why": "the reward is wrong"})
    assert (paused["before"], paused["after"]) == ({"paused": None}, {"paused": "the reward is wrong"})
    assert (await post("/api/v1/runs/steered/resume"))["after"] == {"paused": None}
    assert (await post("/api/v1/runs/steered/share", {"weight": 2.0}))["after"]["weight"] == 2.0
    assert (await post("/api/v1/workers/w/drain"))["after"] == {"is_draining": True}
    retried = await post("/api/v1/dead/retry", {"rollouts": [first]})
    assert len(retried["after"]["groups"]) == 1
    dropped = await post("/api/v1/dead/drop", {"run": "steered"})
    assert (dropped["before"]["rollouts"], dropped["after"]) == ([second], {"num_dropped": 1})
    assert dispatcher.stats().num_dead == 0
    num_written = len(await _journal(serve))
    for path, body in [("runs/none/pause", {}), ("workers/none/drain", {}), ("dead/drop", {"rollouts": [second]})]:
        await post(f"/api/v1/{path}", body, 404)
    for path, body in [("dead/drop", {}), ("dead/retry", {"run": "steered", "rollouts": ["x"]}), ("runs/r0/share", {})]:
        await post(f"/api/v1/{path}", body, 400)
    assert len(await _journal(serve)) == num_written


async def test_other_sites_write_nothing_even_with_the_operators_secret(serve, fresh):
    before = fresh.store.get("g0.0-0").rewards
    async with serve() as client:
        for headers in (
            {"Agent-Layer-By": ""},
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/x-www-form-urlencoded"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": ""},
            {"Origin": "http://[evil"},
            {"Origin": "http://127.0.0.1:1"},
            {"Host": "evil.example"},
            {"Host": "127.0.0.1.evil.example"},
            {"Sec-Fetch-Site": "same-site"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            refused = await _post(client, _REWARD, {"score": 1.0}, 403, _TOKEN | headers)
            (name,) = headers
            assert name in refused["error"]["message"]
    assert fresh.store.get("g0.0-0").rewards == before
    assert await _journal(serve) == []


async def test_every_write_needs_the_flag_and_the_operator(serve):
    async with (
        serve() as open_here,
        serve("read") as beyond,
        serve(writable=None) as reading,
        serve(operator_token=None) as keyed,
    ):
        for path in _PATHS:
            assert "--allow-writes" in (await _post(reading, path, {}, 405))["error"]["message"]
            assert "operator" in (await _post(open_here, path, {}, 403, {}))["error"]["message"]
            for answer in ("Bearer wrong", "Bearer \udcff", "Bearer ", "secret", "Basic secret"):
                await _post(open_here, path, {}, 403, {"Authorization": answer})
            await _post(open_here, f"{path}?token=secret", {}, 403, {})
            await _post(open_here, path, {}, 403, {"Cookie": "agent_layer_view_1=secret"})
            await _post(keyed, path, {}, 403, {"Authorization": "Bearer "})
            await _post(keyed, path, {}, 403, {"Authorization": "Bearer None"})
            await _post(beyond, path, {}, 401, {})
            await _post(beyond, path, {}, 403, {"Authorization": "Bearer read"})
            for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
                await _post(open_here, path, {}, 405, method=method)
    assert await _journal(serve) == []


async def test_the_page_learns_whether_it_may_write(serve):
    async def info(bearer, token=None, **options):
        async with serve(token, **options) as client:
            answer = await (await client.get("/api/v1/info", headers={"Authorization": f"Bearer {bearer}"})).json()
        return answer["takes_writes"], answer["may_write"], answer["is_operator"]

    assert await info("secret", writable=None) == (False, False, True)
    assert await info("") == (True, False, False)
    assert await info("secret") == (True, True, True)
    assert await info("read", "read") == (True, False, False)
    assert await info(API_KEY, "read") == (True, True, True)


async def test_a_browser_becomes_operator_by_the_address_or_the_key_which_no_cookie_holds(serve):
    for by_address in (True, False):
        async with serve() as client:
            if by_address:
                answer = await client.get("/?token=secret", allow_redirects=False)
            else:
                assert (await client.post("/api/v1/session", json={}, headers=_BY)).status == 403
                keyed = _BY | {"Authorization": f"Bearer {API_KEY}"}
                answer = await client.post("/api/v1/session", json={}, headers=keyed)
            (cookie,) = answer.cookies.values()
            assert API_KEY not in cookie.value
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
            assert str(client.port) in cookie.key
            assert (await (await client.get("/api/v1/info")).json())["may_write"] is True
            assert (await client.post("/api/v1/runs/none/pause", json={}, headers=_BY)).status == 404
    async with serve() as client:
        await client.get("/?token=wrong", allow_redirects=False)
        assert (await (await client.get("/api/v1/info")).json())["may_write"] is False


async def test_addresses_of_writers_are_the_operators_to_see(post, serve):
    await post("/api/v1/runs/none/pause", {}, 404)
    await post(_REWARD, {"score": 1.0, "step": 99}, 400)
    assert [one["address"] for one in await _journal(serve)] == ["127.0.0.1"]
    assert [one["address"] for one in await _journal(serve, {})] == [None]


async def test_hostile_bodies_change_nothing_and_are_told_why(serve, fresh):
    before = fresh.store.get("g0.0-0").rewards
    async with serve() as client:
        for body in (
            {"score": "x"},
            {"colour": 1},
            {"score": 1, "step": 99},
            {"name": "new"},
            [],
            {"score": 1, "comment": "x" * 4001},
            b"{",
            b"\xff\xfe",
            b"[" * 100_000,
            b'{"comment":' + b"[" * 100_000,
            b'{"score": NaN}',
            b'{"score": 1e999}',
            b'{"score": 1, "comment": "\\ud800"}',
            b'{"score": 1, "name": "a\\u0000b"}',
            b'{"score": 1, "name": "' + b"x" * 129 + b'"}',
            b'{"score": 1, "step": 99999999999999999999999}',
            b'{"score": 1, "agent": ""}',
            b"null",
        ):
            error = (await _post(client, _REWARD, body, 400))["error"]
            assert error["code"] == "bad_input"
            assert "xpected" in error["message"]
        error = (await _post(client, _REWARD, {"comment": "x" * 300_000}, 413))["error"]
        assert error["code"] == "too_large"
        many = {"rollouts": [f"r{number}" for number in range(1_001)]}
        assert "1000" in (await _post(client, "/api/v1/dead/drop", many, 400))["error"]["message"]
    assert fresh.store.get("g0.0-0").rewards == before


async def test_hostile_names_are_not_found_and_leave_no_line(serve):
    async with serve() as client:
        for name in ("%2e%2e%2f%2e%2e%2fx", "%00", "a%0ab", "%FF%FE", "x" * 4_000, "%3Cscript%3E", "*"):
            for path, body in (
                (f"trajectories/{name}/rewards", {"score": 1.0}),
                (f"trajectories/{name}/labels", {"name": "n", "value": "x"}),
                (f"runs/{name}/pause", {}),
                (f"workers/{name}/drain", {}),
            ):
                assert (await _post(client, f"/api/v1/{path}", body, 404))["error"]["code"] == "not_found"
    assert await _journal(serve) == []


async def test_names_that_would_forge_a_line_are_refused(serve):
    async with serve() as client:
        for name in ("Ada%0aEve", "x" * 65, "%E2%80%AEadA", "%20", "%FF"):
            refused = await _post(client, _REWARD, {"score": 1.0}, 400, _TOKEN | {"Agent-Layer-By": name})
            assert "Agent-Layer-By" in refused["error"]["message"]
    assert await _journal(serve) == []


async def test_what_fails_half_way_stands_in_the_journal(post, serve):
    error = (await post(_REWARD, {"score": 1.0, "step": 99}, 400))["error"]
    (line,) = await _journal(serve)
    assert (line["after"], line["error"]) == (None, error["message"])


async def test_a_selection_becomes_tasks_that_run_again_and_a_dataset(serve, agent_layer):
    ids = ["g0.0-0", "g0.1-0", "g2.3-0"]
    async with serve() as client:

        async def taken(what, chosen):
            attributes = {"headers": _BY | _TOKEN, "json": {"trajectories": chosen}}
            answer = await client.post(f"/api/v1/export/{what}", **attributes)
            assert f'filename="{what}.jsonl"' in answer.headers["Content-Disposition"]
            return await answer.text()

        tasks, dataset = await taken("tasks", ids), await taken("dataset", ids)
        for body, status in (({"trajectories": []}, 400), ({"trajectories": ["none"]}, 404), ({}, 400)):
            for what in EXPORTS:
                await _post(client, f"/api/v1{what}", body, status)
    parsed = parse_tasks(tasks.encode().splitlines(), subject="tasks", run="again")
    assert [(one.id, one.run, one.input, one.grading) for one in parsed] == [
        (name, "again", "what?", SECRET) for name in ("t0", "t2")
    ]
    status, out, _ = agent_layer("store", "export", "jsonl", "-")
    assert status == 0
    written = {json.loads(line)["trajectory_id"]: line for line in out.splitlines()}
    assert dataset.splitlines() == [written[one] for one in ids]
    assert [(one["action"], one["subject"], one["after"]) for one in await _journal(serve)] == [
        (what, ", ".join(ids), {"num_trajectories": 3}) for what in ("dataset", "tasks")
    ]


def test_the_journal_keeps_the_newest(fresh):
    store = fresh.store
    journal = Journal(store.keys, store.objects, max_kept=3)
    for at in range(6):
        journal.record(
            WriteLine(id=f"i{at}", at=100.0 + at, by="Ada", address=None, action="a", subject="s", before={})
        )
        journal.prune()
    assert [line["id"] for line in fresh.get("/api/v1/writes")["items"]] == ["i5", "i4", "i3"]
    assert len(list(store.objects.list(f"{store.keys.namespace}/writes/"))) == 3


def test_beyond_this_machine_writing_needs_an_operators_key_to_be_set(agent_layer, monkeypatch):
    monkeypatch.setenv("AGENT_LAYER_INSECURE", "1")
    monkeypatch.delenv("AGENT_LAYER_API_KEY", raising=False)
    status, _, errors = agent_layer("view", "--host", "0.0.0.0", "--port", 0, "--allow-writes")

    assert status != 0
    assert "AGENT_LAYER_API_KEY" in errors
