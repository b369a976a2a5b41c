"""This file holds how the scripts that run inside Redis are put together: what a script stands behind, then itself."""

from functools import cache
from pathlib import Path

from redis import Redis
from redis.commands.core import Script

_LUA = Path(__file__).parents[2] / "store" / "lua"

STANDS_BEHIND: dict[str, tuple[str, ...]] = {
    "find": ("scan",),
    "tally": ("scan",),
    "count": ("scan",),
    "audit": ("blocks",),
    "retire": ("blocks",),
    "strays": ("blocks",),
    "blobs": ("blocks",),
    "unneeded": ("blocks",),
    "mark": ("blocks", "merged"),
    "rewards": ("blocks", "events", "basis"),
    "forget": ("blocks", "events", "death"),
    "commit": ("blocks", "events", "basis", "death", "merged"),
    "claims/join": ("claims/shared",),
    "claims/take": ("claims/shared",),
    "claims/renew": ("claims/shared",),
    "claims/postpone": ("claims/shared",),
    "claims/ack": ("claims/shared",),
}
"""Each script → the files before it, in their order: each uses what those before it define."""


def load_script(redis: Redis, name: str) -> Script:
    """Give a script as a function; Redis is sent its text when it is first called there."""
    return redis.register_script(_text_of(name))


@cache
def _text_of(name: str) -> str:
    return "".join((_LUA / f"{one}.lua").read_text() for one in (*STANDS_BEHIND[name], name))
