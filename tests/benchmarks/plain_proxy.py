"""The floor of a recording proxy: aiohttp, raw request and answer bytes in one write, nothing else.

``python plain_proxy.py PORT UPSTREAM FILE``. It reads no token, checks no key and knows no rollout.
"""

import os
import struct
import sys
import time

from aiohttp import ClientSession, TCPConnector, web

UPSTREAM, SESSION = web.AppKey("upstream", str), web.AppKey("session", ClientSession)
LOG = web.AppKey("log", int)


async def _pass_on(request: web.Request) -> web.StreamResponse:
    began, content_read = time.time(), await request.read()
    headers = {"content-type": "application/json", "authorization": request.headers.get("authorization", "")}
    url = f"{request.app[UPSTREAM]}{request.path}"
    async with request.app[SESSION].post(url, data=content_read, headers=headers) as reply:
        if reply.content_type == "text/event-stream":
            response, received = web.StreamResponse(headers={"content-type": "text/event-stream"}), list[bytes]()
            await response.prepare(request)
            async for piece in reply.content.iter_any():
                received.append(piece)
                await response.write(piece)
            _record(request, content_read, b"".join(received), began)
            return response
        answered = await reply.read()
    _record(request, content_read, answered, began)
    return web.Response(body=answered, status=reply.status, content_type="application/json")


def _record(request: web.Request, wanted: bytes, answered: bytes, began: float) -> None:
    head = struct.pack("<IIdd", len(wanted), len(answered), began, time.time())
    os.write(request.app[LOG], head + wanted + answered)


async def _open_session(app: web.Application):
    async with ClientSession(connector=TCPConnector(limit=0)) as app[SESSION]:
        yield


def main() -> None:
    """Serve until the process ends."""
    port, upstream, file = sys.argv[1:]
    app = web.Application(client_max_size=1 << 28)
    app[UPSTREAM], app[LOG] = upstream, os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    app.cleanup_ctx.append(_open_session)
    app.router.add_post("/{path:.*}", _pass_on)
    web.run_app(app, host="127.0.0.1", port=int(port), access_log=None, print=None)


if __name__ == "__main__":
    main()
