"""Worlds behind a server that speaks OpenEnv's WebSocket: here one of this test's, in the long tests theirs."""

import asyncio
import json
import random
import threading

import pytest
from aiohttp import WSMsgType, web

from agent_layer.errors import BadInputError, UnreachableError
from envs.adapters.openenv import OpenEnvEnvironment, OpenEnvSet
from envs.env_context import AttemptContext, ToolCall, ToolCalls

GUESS = {"title": "GuessAction", "required": ["guess"], "properties": {"guess": {"type": "string"}}}
MOVE = {"title": "Move", "required": ["row", "column"], "properties": {"row": {"type": "integer"}, "column": {}}}
TOOL = {
    "name": "add",
    "description": "Add.",
    "input_schema": {"type": "object", "required": ["by"], "properties": {"by": {"type": "integer"}}},
}


class World:
    """A number that follows from the seed, to be guessed by text, by JSON or by tools."""

    def __init__(self, action):
        self.action, self.hidden, self.level = action, 0, None

    def reset(self, data):
        self.hidden, self.level = random.Random(data["seed"]).randrange(10), data.get("level")
        return {"observation": {"hint": f"level {self.level}", "metadata": {}}, "reward": None, "done": False}

    def step(self, data):
        if data.get("type") == "list_tools":
            return {"observation": {"tools": [TOOL]}, "reward": None, "done": False}
        if data.get("type") == "call_tool":
            self.hidden += data["arguments"]["by"]
            shown = {"tool_name": "add", "result": {"data": self.hidden}, "error": None}
            return {"observation": shown, "reward": 0.5, "done": self.hidden > 100}
        given = data.get("guess", data.get("row"))
        if given is None:
            raise KeyError("VALIDATION_ERROR")
        if given == "crash":
            raise KeyError("EXECUTION_ERROR")
        is_right = str(given) == str(self.hidden)
        return {"observation": {"answer": "found" if is_right else "no"}, "reward": float(is_right), "done": is_right}


def make_app(action):
    async def socket(request):
        world, ws = World(action), web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            if message.type is not WSMsgType.TEXT:
                break
            request = json.loads(message.data)
            if request["type"] == "close":
                break
            if request.get("data", {}).get("guess") == "vanish":
                await ws.close()
                break
            try:
                data = world.reset(request["data"]) if request["type"] == "reset" else world.step(request["data"])
                await ws.send_json({"type": "observation", "data": data})
            except KeyError as error:
                await ws.send_json({"type": "error", "data": {"code": error.args[0], "message": "that is no move"}})
        return ws

    async def answer(request):
        return web.json_response({"action": action} if request.path == "/schema" else {"name": "w", "version": "3"})

    app = web.Application()
    app.add_routes([web.get("/ws", socket), web.get("/schema", answer), web.get("/metadata", answer)])
    return app


@pytest.fixture
def serve():
    """``serve(action)``: address of a server in a thread of its own."""
    ends = []

    def serve(action):
        ready, loop, found = threading.Event(), asyncio.new_event_loop(), []

        async def run():
            runner = web.AppRunner(make_app(action), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            found.append((f"http://127.0.0.1:{runner.addresses[0][1]}", stop := asyncio.Event()))
            ready.set()
            await stop.wait()
            await runner.cleanup()

        thread = threading.Thread(target=lambda: (loop.run_until_complete(run()), loop.close()))
        thread.start()
        ready.wait()
        ends.append((thread, loop, found[0][1]))
        return found[0][0]

    yield serve
    for thread, loop, stop in ends:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def draw(url, count=1, **words):
    return list(OpenEnvSet(url).tasks(**{"split": "train", "count": count, **words}))


def open_world(task):
    return OpenEnvEnvironment(AttemptContext(task=task.view(), seed=0, clock=lambda: 0.0, find_sandbox=lambda: None))


def find_hidden(task):
    return random.Random(task.input["reset"]["seed"]).randrange(10)


def test_tasks_differ_by_seed_and_splits_are_disjoint(serve):
    url = serve(GUESS)
    taskset = OpenEnvSet(f"{url}?level=2")
    train, held_out = (list(taskset.tasks(split=split, count=50)) for split in ("train", "eval"))
    seeds = [{task.seed for task in some} for some in (train, held_out)]
    assert [len(some) for some in seeds] == [50, 50]
    assert seeds[0].isdisjoint(seeds[1])
    assert all(0 <= seed < 2**31 for some in seeds for seed in some)
    assert train[0].input["reset"] == {"level": 2, "seed": train[0].seed}
    assert (taskset.version, list(taskset.tasks(split="train", count=50))) == ("w 3", train)
    for address in ("", "localhost", "ftp://x", "http://[x", "http://h:99999999", "http://h:no"):
        with pytest.raises(BadInputError, match="expected openenv:http://HOST:PORT"):
            OpenEnvSet(address)


async def test_a_text_acts_and_a_mistake_is_said_to_the_policy(serve):
    url = serve(GUESS)
    (task,) = await asyncio.to_thread(draw, f"{url}?level=1")
    world = open_world(task)
    first = await world.reset(task)
    assert "level 1" in first.observation
    assert "Answer with the guess only" in first.observation
    wrong = await world.step("77")
    assert (wrong.observation, wrong.reward, wrong.done) == ("no", 0.0, False)
    crashed = await world.step("crash")
    assert (crashed.observation, crashed.reward, crashed.done) == ("that is no move", 0.0, False)
    found = await world.step(f" {find_hidden(task)} ")
    assert (found.observation, found.reward, found.done) == ("found", 1.0, True)
    assert world.state() == {"num_steps": 3}
    await world.close()

    world = open_world(task)
    await world.reset(task)
    with pytest.raises(UnreachableError, match="the session ended"):
        await world.step("vanish")
    await world.close()


async def test_json_acts_where_an_action_has_several_fields(serve):
    url = serve(MOVE)
    (task,) = await asyncio.to_thread(draw, url)
    world = open_world(task)
    assert "fits this schema" in (await world.reset(task)).observation
    for text in ("left", "3", "[" * 100_000, '{"row": NaN'):
        refused = await world.step(text)
        assert "no JSON object" in refused.observation
        assert (refused.reward, refused.done) == (0.0, False)
    assert (await world.step("{}")).observation == "that is no move"
    found = await world.step(f'```json\n{{"row": {find_hidden(task)}, "column": 1}}\n```')
    assert (found.reward, found.done) == (1.0, True)
    await world.close()


async def test_tools_of_the_server_are_tools_of_the_model_and_a_text_ends(serve):
    url = serve({"title": "CallToolAction"})
    (task,) = await asyncio.to_thread(draw, url)
    world = open_world(task)
    assert [(one.name, one.parameters["required"]) for one in world.tools] == [("add", ["by"])]
    await world.reset(task)
    calls = [ToolCall(id=str(by), name="add", arguments={"by": by}) for by in (1, 200, 5)]
    stepped = await world.step(ToolCalls(text="", calls=calls))
    hidden = find_hidden(task)
    assert stepped.observation == [str(hidden + 1), str(hidden + 201), "the episode has ended"]
    assert (stepped.reward, stepped.done) == (1.0, True)
    ended = await world.step("done")
    assert (ended.reward, ended.done) == (0.0, True), "an attempt that does nothing has a reward, too"
    await world.close()


async def test_a_server_that_is_not_there_is_the_infrastructures_fault(serve):
    url = serve(GUESS)
    (task,) = await asyncio.to_thread(draw, url)
    lost = {**task.input, "url": "http://127.0.0.1:9"}
    with pytest.raises(UnreachableError, match="start it, or correct the address"):
        await open_world(type(task)(id="x", run="r", input=lost)).reset(task)
