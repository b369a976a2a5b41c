"""verifiers' own runner over recorded answers: its environment, client and tool servers, over HTTP.

    python verifiers_runner.py FILE     with {"id", "answers": {index: [message]}}; prints {index: {"reward", …}}

The agent program is this file's, in this process: theirs starts an interpreter for each turn.
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import openai
import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["PlainHarness"]


class PlainHarness(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = SUPPORTS_MCP = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, **_words):
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += map(message_to_wire, prompt or [])
        client = openai.AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0)
        config = {"mcpServers": {name: {"url": url} for name, url in mcp_urls.items()}}
        async with AsyncExitStack() as stack:
            tools, dispatch, servers = await connect_mcp(config, stack, set()) if mcp_urls else ([], {}, {})
            offered = {"tools": tools} if tools else {}
            while True:
                try:
                    done = await client.chat.completions.create(model=ctx.model, messages=messages, **offered)
                except openai.BadRequestError:  # a stop
                    return vf.ProgramResult(exit_code=1, stdout="", stderr="")
                message = done.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    return vf.ProgramResult(exit_code=0, stdout="", stderr="")
                for one in message.tool_calls:
                    arguments = json.loads(one.function.arguments)
                    content = await call_mcp(servers, dispatch, one.function.name, arguments)
                    messages.append({"role": "tool", "tool_call_id": one.id, "content": content})


async def main():
    request = json.loads(Path(sys.argv[-1]).read_text())
    left = []

    async def answer(request):
        body = await request.json()
        message = left.pop(0)
        choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        common = {"id": "c", "created": 0, "model": body["model"]}
        return web.json_response({**common, "object": "chat.completion", "choices": [choice], "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"

    seats = [
        name
        for name, field in vf.env_config_type(request["id"]).model_fields.items()
        if isinstance(field.default, vf.AgentConfig)
    ]
    seat = {"harness": {"id": "plain_harness"}, "runtime": {"type": "subprocess"}}
    env = vf.load_environment(vf.resolve_env_config({"taskset": {"id": request["id"]}, seats[0]: seat}))
    client = vf.EvalClientConfig(base_url=url, api_key_var="NO_SUCH_KEY")
    context = vf.ModelContext(model="recorded", client=client)
    found = {}
    async with env.serving():
        for index, task in enumerate(env.taskset):
            if str(index) not in request["answers"]:
                continue
            left[:] = request["answers"][str(index)]
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


if __name__ == "__main__":
    sys.modules["plain_harness"] = sys.modules["__main__"]
    asyncio.run(main())
