"""Kinds of sandbox that tests need: without them they are skipped, or fail where AGENT_LAYER_REQUIRE names the kind."""

import asyncio
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from envs.sandbox.registry import make_kind

__all__ = ["require_kind"]


def require_kind(*names: str) -> None:
    """End the test unless one of these kinds of sandbox works on this machine."""
    if reasons := _find_reasons(names):
        is_required = not {*names}.isdisjoint(os.environ.get("AGENT_LAYER_REQUIRE", "").split(","))
        (pytest.fail if is_required else pytest.skip)("; ".join(reasons))


@cache
def _find_reasons(names: Collection[str]) -> list[str]:
    """Return why none of the kinds works; empty: one does."""
    with ThreadPoolExecutor(1) as pool:  # a caller's loop may run in this thread
        reasons = [pool.submit(asyncio.run, _probe(name)).result() for name in names]
    return [f"kind {name}: {reason}" for name, reason in zip(names, reasons, strict=True)] if all(reasons) else []


async def _probe(name: str) -> str | None:
    """Return why a kind does not work."""
    kind = make_kind(name)
    try:
        support = await kind.probe()
        return None if support.works else support.reason or "it does not work here"
    finally:
        await kind.close()
