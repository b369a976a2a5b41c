"""The stream of events: each change is one event, a reader that was away resumes, a slow one loses nothing."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from agent_layer.dispatcher import Dispatcher
from agent_layer.infra import open_objects
from agent_layer.schema.task import Task
from agent_layer.schema.training import PolicyVersion, TrainedBatch, TrainedRollout
from agent_layer.store import Store
from agent_layer.view import ReadContext, build_view_app
from agent_layer.view.answers.events import Change
from agent_layer.view.events.ring import Ring
from agent_layer.view.events.streams import MAX_STREAMS, EventStreams

from ...builders import attempt, call, closed_group
from ...stored import write_segment
from ...waiting import until, within

_EVENTS = "/api/v1/events"


class _Reader:
    """A stream, read like a browser reads it."""

    def __init__(self, answer):
        self.answer = answer
        self.place = ""

    async def next(self):
        """Return the next event: its kind and what it says."""
        kind = message = None
        async with within(60, "an event of the stream"):
            async for line in self.answer.content:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "id":
                    self.place = value
                elif field == "event":
                    kind = value
                elif field == "data":
                    message = json.loads(value)
                elif not field and kind is not None:
                    return kind, message
        return None

    async def until_announced(self, kind, name):
        """Read until a thing is named in an event of its kind; return the event."""
        while found := await self.next():
            if found[0] == kind and name in found[1]["ids"]:
                return found[1]
        raise AssertionError(f"the stream ended before {kind} {name}")


@pytest.fixture
def store(settings, redis):
    return Store(settings, redis, open_objects(settings))


@pytest.fixture
def client(settings, store):
    return lambda: TestClient(TestServer(build_view_app(ReadContext(settings, store))))


@asynccontextmanager
async def _streamed(client, place="", **parameters):
    headers = {"Last-Event-ID": place} if place else {}
    async with client.get(_EVENTS, headers=headers, params=parameters) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        yield _Reader(answer)


async def test_each_kind_of_change_is_told_with_its_run(client, store, settings):
    async with client() as asking, _streamed(asking) as reader:
        await _until_ready(reader)
        for records in (
            attempt("a.0-0", run="r1", status="running"),
            call("a.0-0", run="r1"),
            [closed_group("g", "a.0-0", run="r1")],
            [_batch("r2", 7), PolicyVersion(run="r2", number=1, location="/w", created_at=1.0)],
        ):
            await asyncio.to_thread(write_segment, store, *records)
        await asyncio.to_thread(Dispatcher(store.redis, settings).submit, [Task(id="t", run="r1", input="?")])
        expected = {
            ("trajectory", "a.0-0"): ["r1"],
            ("step", "a.0-0"): ["r1"],
            ("group", "g"): ["r1"],
            ("update", "r2/7"): ["r2"],
            ("run", "r2"): ["r2"],
            ("fleet", ""): [],
        }
        found = {}
        while found.keys() != expected.keys():
            kind, message = await reader.next()
            found |= {one: message["runs"] for one in expected if one[0] == kind and one[1] in message["ids"]}
        assert found == expected

        await asyncio.to_thread(store.delete, "a.0-0")
        assert (await reader.until_announced("trajectory", "a.0-0"))["runs"] == ["r1"]


async def test_a_report_of_a_step_is_told(client, settings):
    report = settings.dir / "runs" / "r9" / "progress.jsonl"
    async with client() as asking, _streamed(asking) as reader:
        await _until_ready(reader)
        report.parent.mkdir(parents=True)

        async def grows():
            """The first look only remembers, so a report that came before it is not told."""
            while True:
                with report.open("a") as file:
                    file.write("{}\n")
                await asyncio.sleep(0.5)

        growing = asyncio.create_task(grows())
        assert (await reader.until_announced("run", "r9"))["runs"] == ["r9"]
        growing.cancel()


async def test_who_was_away_gets_what_was_missed_and_no_more(client, store):
    async with client() as asking:
        async with _streamed(asking) as reader:
            await _until_ready(reader)
            write_segment(store, *attempt("a.0-0", status="running"))
            await reader.until_announced("trajectory", "a.0-0")
            place = reader.place
        async with _streamed(asking) as other:
            write_segment(store, *attempt("b.0-0", status="running"))
            await other.until_announced("trajectory", "b.0-0")
        for resumed in (_streamed(asking, place), _streamed(asking, after=place)):
            async with resumed as reader:
                kind, message = await reader.next()
                while kind == "fleet":
                    kind, message = await reader.next()
                assert (kind, message["ids"]) == ("trajectory", ["b.0-0"])
        async with _streamed(asking, "another-server-3") as reader:
            assert (await reader.next())[0] == "reload"


async def test_a_run_is_told_of_its_own(client, store):
    async with client() as asking, _streamed(asking, run="r2") as reader:
        await _until_ready(reader)
        write_segment(store, *attempt("a.0-0", run="r1"))
        async with _streamed(asking) as other:
            write_segment(store, *attempt("c.0-0", run="r3"))
            await other.until_announced("trajectory", "c.0-0")
        write_segment(store, *attempt("b.0-0", run="r2"))
        kind, message = await _not_ready(reader)
        assert (kind, message["ids"], message["runs"]) == ("trajectory", ["b.0-0"], ["r2"])


async def test_who_reads_too_slowly_is_told_to_reload_and_nothing_more_is_kept(settings, store):
    streams = EventStreams(ReadContext(settings, store), kept=8)
    async with TestClient(TestServer(_app(streams))) as asking:
        async with _streamed(asking) as reader:
            await reader.next()
            place = reader.place
        for number in range(9):
            streams._ring.publish([_change(number)])
        assert len(streams._ring._messages) == 8
        async with _streamed(asking, place) as reader:
            assert await reader.next() == ("reload", {})
            streams._ring.publish([_change(100)])
            assert (await reader.next())[1]["ids"] == ["100"]


def test_a_place_is_kept_exactly_as_long_as_all_behind_it():
    asyncio.run(_check_places())


async def _check_places():
    ring = Ring("x", 3)
    for number in range(5):
        ring.publish([_change(number)])
        assert [ring.after(at) is None for at in range(number + 3)] == [
            *[True] * max(0, number - 2),
            *[False] * min(4, number + 2),
            True,
        ]
    ring.lose()
    assert ring.after(5) is None
    assert ring.after(6) == []
    assert [ring.number(place) for place in ("x-3", "y-3", "x-", "x-3x", "x--3", "")] == [3, *[None] * 5]


async def test_streams_are_bounded(client):
    async with client() as asking, AsyncExitStack() as open_streams:
        readers = [await open_streams.enter_async_context(_streamed(asking)) for _ in range(MAX_STREAMS)]
        refused = await asking.get(_EVENTS)
        assert (refused.status, (await refused.json())["error"]["code"]) == (503, "busy")
        readers[0].answer.close()
        await until(lambda: _is_let_in(asking))


async def _is_let_in(asking):
    async with asking.get(_EVENTS) as answer:
        return answer.status == 200


async def test_unknown_parameters_are_refused(client):
    async with client() as asking:
        assert (await asking.get(_EVENTS, params={"since": "2h"})).status == 400
        assert (await asking.head(_EVENTS)).status in (404, 405)


async def test_streams_end_with_the_server(settings, store):
    runner = web.AppRunner(build_view_app(ReadContext(settings, store)))
    await runner.setup()
    server = web.TCPSite(runner, "127.0.0.1", 0)
    await server.start()
    reading, writing = await asyncio.open_connection(*runner.addresses[0][:2])
    writing.write(f"GET {_EVENTS} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await reading.readuntil(b"event: ready")
    async with within(60, "the end of the server and its stream"):
        await runner.cleanup()
        assert (await reading.read()).endswith(b"0\r\n\r\n")
    writing.close()


async def test_a_lost_connection_to_redis_makes_pages_reload(client, store, redis):
    cut_off = set()

    def cut():
        """Cut it while it waits: one that is cut between two waits is opened again, and nothing is lost."""
        for victim in _watching(store):
            cut_off.add(victim["id"])
            redis.client_kill_filter(_id=victim["id"])
        return reloading.done()

    async with client() as asking, _streamed(asking) as reader:
        reloading = asyncio.create_task(_until_reload(reader))
        await until(cut)
        await reloading
        await until(lambda: {one["id"] for one in _watching(store)} - cut_off)
        write_segment(store, *attempt("a.0-0"))
        await reader.until_announced("trajectory", "a.0-0")


def _app(streams):
    app = web.Application()
    app.add_routes([web.get(_EVENTS, streams.serve)])
    app.on_shutdown.append(streams.end)
    return app


def _change(number):
    return Change(kind="trajectory", runs=["r"], ids=[str(number)], num=1)


def _batch(run, step):
    rollout = TrainedRollout(trajectory_id="a.0-0", group_id="g", reward=1.0, reward_ids=[], samples_hash="")
    return TrainedBatch(
        run=run, batch_id=f"{run}{step}", step=step, policy_version=0, trained_at=9.0, rollouts=[rollout],
        num_samples=1, batch_hash="",
    )  # fmt: skip


async def _not_ready(reader):
    while (found := await reader.next())[0] in ("ready", "fleet"):
        pass
    return found


async def _until_reload(reader):
    while (found := await reader.next())[0] != "reload":
        assert found[0] in ("ready", "fleet")


def _watching(store):
    """Connections of the watcher that wait for the store's events."""
    return [one for one in store.redis.client_list() if one["cmd"] == "xread"]


async def _until_ready(reader):
    """Wait until the stream sends each later change."""
    assert (await reader.next())[0] == "ready"
