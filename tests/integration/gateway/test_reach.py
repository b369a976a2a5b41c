"""The gateway passes nothing on but questions to the model: no path, however written, reaches the engine's controls."""

import asyncio
from contextlib import suppress

from hypothesis import HealthCheck, given, settings, strategies as st

from ...profiles import num_examples
from ...waiting import within

CONTROLS = ["collective_rpc", "pause", "resume", "reset_prefix_cache", "metrics", "tokenize", "health", "v1/models"]
STEPS = [
    "..",
    ".",
    "%2e%2e",
    "%2E.",
    "..%2f",
    "%2f",
    "",
    ";",
    "%00",
    "%0d%0a",
    "r",
    "v1",
    "chat",
    "engines",
    "rollouts",
]
SCHEMES = ["", "/", "//", "http://{engine}/", "http:@{engine}/", "/r/{rollout}/v1/", "/r/{rollout}/", "/v1/", "*"]

paths = st.builds(
    lambda scheme, steps, control: scheme + "/".join([*steps, *control]),
    st.sampled_from(SCHEMES),
    st.lists(st.sampled_from([*STEPS, "{rollout}", "{engine}"]), max_size=5),
    st.lists(st.sampled_from(CONTROLS), min_size=1, max_size=2),
)
methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "PATCH"])


@settings(max_examples=num_examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=paths, method=methods, is_operator=st.booleans(), has_header=st.booleans())
async def test_no_path_reaches_the_engines_controls(gateway, path, method, is_operator, has_header):
    opened = gateway.rollouts[0] if gateway.rollouts else await gateway.open()
    gateway.rollouts[:] = [opened]
    engine, rollout = gateway.engine.url.removeprefix("http://"), opened["trajectory_id"]
    key = "operator-key" if is_operator else opened["api_key"]
    named = {"x-agent-layer-rollout": rollout} if has_header else {}
    target = path.format(engine=engine, rollout=rollout)

    await send(gateway.url, method, target, {"Authorization": f"Bearer {key}", **named})

    assert not gateway.engine.controls
    assert gateway.engine.calls == []


async def test_the_gateway_still_serves_after_such_requests(gateway):
    opened = await gateway.open()
    for target in ("http:@{engine}/collective_rpc", "/r/%2e%2e/%2e%2e/pause", "/" + "../" * 500, "\x7f"):
        await send(
            gateway.url, "POST", target.format(engine="127.0.0.1:1"), {"Authorization": f"Bearer {opened['api_key']}"}
        )

    assert (await gateway.chat(opened, "hello"))[0] == 200
    assert not gateway.engine.controls


async def send(url, method, target, headers):
    """Send a request as no client would; give its status, or None when the connection was just closed."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = b'{"method": "reload_weights", "model": "m"}'
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}:{port}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    try:
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        async with within(60, "an answer or the end of the connection"):
            first = await reader.readline()
        return int(first.split()[1]) if first else None
    except ConnectionError:
        return None
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
