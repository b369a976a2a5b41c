"""The interception server of verifiers 0.4 as a process, for the conformance kit, and the kit's adapter of it.

``conformance_verifiers.py PORT ENGINE_URL`` runs in verifiers' own environment: ``POST /open`` registers a rollout,
``GET /records`` returns what all traces have. ``--records conformance_verifiers:open_server`` runs in the kit.
"""

import json
import sys
import urllib.request

__all__ = ["open_server"]


class VerifiersAdapter:
    """A rollout for each check."""

    def __init__(self, url, key):
        self._url, self._key = url, key

    def open_door(self, check):  # noqa: ARG002  # all rollouts are alike
        """See CaptureAdapter."""
        from agent_layer.conformance import Door  # noqa: PLC0415  # absent in verifiers' environment

        url, key = self._ask("/open", b"{}")
        return Door(f"{url}/v1", key)

    def read_records(self):
        """See CaptureAdapter."""
        from agent_layer.conformance import RecordedAnswer  # noqa: PLC0415  # absent in verifiers' environment

        return [RecordedAnswer(**record) for record in self._ask("/records", None)]

    def _ask(self, path, body):
        with urllib.request.urlopen(urllib.request.Request(self._url + path, body), timeout=60) as reply:
            return json.load(reply)


def open_server(url, key):
    """Return the adapter."""
    return VerifiersAdapter(url, key)


async def serve(port, engine_url):
    """Serve both until the process ends."""
    import asyncio  # noqa: PLC0415

    from aiohttp import web  # noqa: PLC0415
    from verifiers.v1.clients import ModelContext  # noqa: PLC0415
    from verifiers.v1.configs.client import EvalClientConfig  # noqa: PLC0415
    from verifiers.v1.interception.server import InterceptionServer  # noqa: PLC0415
    from verifiers.v1.session import RolloutSession  # noqa: PLC0415
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask  # noqa: PLC0415

    sessions = []

    async def open_rollout(_):
        trace = Trace.model_construct(task=TraceTask.model_construct(), agent=AgentInfo.model_construct())
        context = ModelContext(model="policy", client=EvalClientConfig(base_url=engine_url, api_key_var="NO_KEY"))
        sessions.append(RolloutSession(ctx=context, trace=trace))
        return web.json_response([server.base_url, server.register(sessions[-1])[0]])

    async def list_records(_):
        return web.json_response([one for session in sessions for one in read_trace(session.trace)])

    async with InterceptionServer() as server:
        app = web.Application()
        app.add_routes([web.post("/open", open_rollout), web.get("/records", list_records)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()


def read_trace(trace):
    """Yield each sampled message with the messages before it."""
    reasons = {call.node: call.finish_reason for call in trace.calls}
    for index, node in enumerate(trace.nodes):
        if node.sampled:
            path, parent = [], node.parent
            while parent is not None:
                path.append(trace.nodes[parent].message)
                parent = trace.nodes[parent].parent
            calls = [
                {"id": one.id, "function": {"name": one.name, "arguments": one.arguments}}
                for one in node.message.tool_calls or ()
            ]
            message = {"role": "assistant", "content": node.message.content, "tool_calls": calls}
            prompt = [json.loads(one.model_dump_json()) for one in reversed(path)]
            yield {"messages": prompt, "message": message, "finish_reason": reasons.get(index)}


if __name__ == "__main__":
    import asyncio

    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
