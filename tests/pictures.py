"""Images inside messages and tools' answers, for tests that look at them."""

import base64
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from agent_layer.gateway.rollouts.media import stored_part
from agent_layer.schema.step import Action, Observation, StepState
from agent_layer.store import Store

from .builders import attempt, call, content
from .stored import write_segment

__all__ = ["REMOTE", "SVG", "data_url", "image_part", "make_png", "store_message"]

SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.owned=1'></svg>"
REMOTE = "https://evil.invalid/i.png"


def make_png(size: int = 8) -> bytes:
    """Return a picture of noise, so that it is stored as a content of its own."""
    rows = b"".join(
        b"\0" + zlib.compress(bytes([row, size]) * size * 3)[: size * 3].ljust(size * 3) for row in range(size)
    )
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def data_url(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def image_part(url: object) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def store_message(store: Store, name: str, parts: Any, reply: Any = None, outputs: Iterable[Any] = ()) -> None:
    """Store a trajectory whose prompt is one message, as the gateway stores it, and what tools answered to its step."""
    part = stored_part(msgspec.json.encode({"role": "user", "content": parts}))
    bodies = {**part.media, part.hash: part.body}
    records = [content(name, body) for body in bodies.values()]
    answer = Action(message={"role": "assistant", "content": reply or "seen"})
    request = call(name, "a", answer, state=StepState(messages=[part.hash]))
    own = {"trajectory_id": name, "run": "r", "name": "look", "at": 3.0, "call_id": f"{name}/a"}
    observed = [Observation(**own, observation_id=f"{name}.{at}", output=one) for at, one in enumerate(outputs)]
    write_segment(store, *attempt(name, *records, *request, *observed))
