"""verifiers' own runner over recorded answers: its environment, client and chat program, over HTTP.

    python verifiers_runner.py FILE     with {"id", "answers": {index: [message]}}      prints {index: {"reward", "parts", "metrics"}}

Only the installation of the chat program's packages is left out: this interpreter has them.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.runtimes import SubprocessRuntime


async def prepare_uv_script(self, script, env=None, *, activate=True):
    folder = tempfile.mkdtemp()
    file = Path(folder, "program.py")
    file.write_text(script if isinstance(script, str) else script.decode())
    return [sys.executable, str(file)]


async def main():
    asked = json.loads(Path(sys.argv[-1]).read_text())
    left = []

    async def answer(request):
        body = await request.json()
        message = left.pop(0)
        choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        common = {"id": "c", "created": 0, "model": body["model"]}
        if not body.get("stream"):
            return web.json_response({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
        calls = [{"index": place, **one} for place, one in enumerate(message.get("tool_calls") or [])]
        delta = {"role": "assistant", "content": message.get("content"), **({"tool_calls": calls} if calls else {})}
        pieces = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}], "usage": usage},
        ]
        events = [json.dumps({**common, "object": "chat.completion.chunk", **piece}) for piece in pieces]
        text = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
        return web.Response(text=text, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    seats = [
        name
        for name, field in vf.env_config_type(asked["id"]).model_fields.items()
        if isinstance(field.default, vf.AgentConfig)
    ]
    seat = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    env = vf.load_environment(vf.resolve_env_config({"taskset": {"id": asked["id"]}, seats[0]: seat}))
    client = vf.EvalClientConfig(base_url=url, api_key_var="NO_SUCH_KEY")
    context = vf.ModelContext(model="recorded", client=client)
    found = {}
    async with env.serving():
        for index, task in enumerate(env.taskset):
            if str(index) not in asked["answers"]:
                continue
            left[:] = asked["answers"][str(index)]
            episode = await env.run_episode(task, context)
            (trace,) = episode.traces
            assert not trace.errors, trace.errors
            found[index] = {
                "reward": trace.reward,
                "parts": {name: one.score for name, one in trace.rewards.items()},
                "metrics": dict(trace.metrics),
                "left": len(left),
            }
    await runner.cleanup()
    print(json.dumps(found))


SubprocessRuntime.prepare_uv_script = prepare_uv_script
asyncio.run(main())
