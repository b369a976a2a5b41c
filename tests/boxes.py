"""What tests need of a machine: without it they are skipped, or fail where AGENT_LAYER_REQUIRE names it."""

import asyncio
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NoReturn

import pytest

from envs.sandbox.registry import make_kind

__all__ = ["REQUIRED", "end_without", "require_kind"]

REQUIRED = frozenset(os.environ.get("AGENT_LAYER_REQUIRE", "").split(","))
"""Read at import: a fixture of all tests clears such variables."""


def end_without(reason: str, *names: str) -> NoReturn:
    """End the test that lacks these: it is skipped, or fails if one of them is required."""
    (pytest.skip if REQUIRED.isdisjoint(names) else pytest.fail)(reason)


def require_kind(*names: str) -> None:
    """End the test unless one of these kinds of sandbox works on this machine."""
    if reasons := _find_reasons(names):
        end_without("; ".join(reasons), *names)


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
