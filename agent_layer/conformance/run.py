"""A run of the kit: all checks ask at the same time, then the records are read once, then every check is judged."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple, TypeAlias

import aiohttp
import msgspec

from agent_layer.conformance.adapters import CaptureAdapter, RecordedAnswer
from agent_layer.conformance.checks import CHECKS, Check
from agent_layer.conformance.dialects import DIALECTS, Dialect
from agent_layer.conformance.engine import KitEngine
from agent_layer.conformance.judging import Case, Claim, Judgement, Member, NotClaimed, find_members
from agent_layer.conformance.session import Session
from agent_layer.errors import UnreachableError

_NUM_AT_ONCE = 16
_NOT_OFFERED = frozenset({400, 404, 405, 501})
"""Statuses with which an endpoint itself refuses a plain question in a dialect or style that it lacks."""
_SHOWN = 160
"""Length to which texts of a result are cut."""


_Way: TypeAlias = tuple[str, bool]
"""(dialect, whether it is streamed)."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one check went, in one dialect and style."""

    check: str
    dialect: str
    style: Literal["whole", "streamed"]
    result: Literal["pass", "fail", "not claimed"]
    """``not claimed``: there was nothing to judge."""
    not_claimed: list[str]
    """What the endpoint does not offer: ``dialect``, ``record``, ``token ids``, …"""
    subject: str | None = None
    """What failed first; None: nothing."""
    expected: str | None = None
    got: str | None = None


class Row(NamedTuple):
    """One check in one dialect and style."""

    check: Check
    dialect: Dialect
    is_streamed: bool

    @property
    def way(self) -> _Way:
        """Dialect and style."""
        return self.dialect.name, self.is_streamed

    @property
    def style(self) -> Literal["whole", "streamed"]:
        """Style as a word."""
        return "streamed" if self.is_streamed else "whole"


def list_rows(dialects: Sequence[str] = (), checks: Sequence[str] = ()) -> list[Row]:
    """Return each check in each of its dialects and styles; empty selections stand for all."""
    return [
        Row(check, dialect, is_streamed)
        for check in CHECKS
        if not checks or check.name in checks
        for dialect in DIALECTS
        if dialect.name in check.dialects and (not dialects or dialect.name in dialects)
        for is_streamed in check.styles
    ]


async def run_checks(
    engine: KitEngine,
    adapter: CaptureAdapter,
    rows: Sequence[Row],
    *,
    model: str,
    without: Collection[str] = (),
    settle_seconds: float = 0.0,
) -> list[CheckResult]:
    """Run checks, read the records, and judge; [num_rows].

    Args:
        engine: the engine that the endpoint uses.
        adapter: of the endpoint.
        rows: checks, as ``list_rows`` returns them.
        model: name that the requests ask for.
        without: names of checks whose promise the endpoint does not make.
        settle_seconds: pause before the records are read, for endpoints that write late.

    Raises: UnreachableError: the endpoint does not answer.
    """
    async with _open_http() as http:

        async def ask(row: Row) -> Session:
            session = await _open(row, engine, adapter, model, http)
            async with permits:
                await row.check.script(session)
            return session

        permits = asyncio.Semaphore(_NUM_AT_ONCE)
        absent = await _find_absent([ask(row) for row in _probes(rows)])
        open_rows = [row for row in rows if row.way not in absent and row.check.name not in without]
        sessions = await asyncio.gather(*map(ask, open_rows))
        for session in sessions:
            await session.wait(lambda: engine.engine.num_running == 0)
    await asyncio.sleep(settle_seconds)
    records = await asyncio.to_thread(_read_all, adapter)
    members = find_members(records)
    by_mark = _assign(sessions, records or [])
    by_row = {row: _judge(row, one, by_mark[one.mark], members) for row, one in zip(open_rows, sessions, strict=True)}
    return [by_row.get(row) or _leave_out(row, absent.get(row.way, "check")) for row in rows]


def _probes(rows: Iterable[Row]) -> list[Row]:
    """Return the first check of the table in each dialect and style that is asked."""
    return list({row.way: row._replace(check=CHECKS[0]) for row in rows}.values())


async def _find_absent(probes: Iterable[Awaitable[Session]]) -> dict[_Way, str]:
    """Return the dialects and styles that an endpoint refuses by itself, and what of them it lacks."""
    found: dict[_Way, str] = {}
    for session in await asyncio.gather(*probes):
        statuses = {one.status for one in session.answers}
        if statuses <= _NOT_OFFERED and not session.samples():
            found[session.dialect.name, session.is_streamed] = "dialect"
    for name, is_streamed in found:
        if (name, not is_streamed) not in found:
            found[name, is_streamed] = "streamed" if is_streamed else "whole"
    return found


def wait_for(url: str, seconds: float) -> None:
    """Wait until a server listens at an address; any answer of HTTP will do.

    Raises: UnreachableError: none does in time.
    """
    deadline = time.monotonic() + seconds
    while not asyncio.run(_answers(url)):
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"{url}: expected an endpoint within {seconds:.0f} s, found none; start it, or wait longer with --wait"
            )
        time.sleep(0.2)


async def _answers(url: str) -> bool:
    async with _open_http() as http:
        try:
            async with http.get(url):
                return True
        except (aiohttp.ClientError, TimeoutError):
            return False


@asynccontextmanager
async def _open_http() -> AsyncGenerator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=120)
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers, connector=connector) as http:
        yield http


async def _open(
    row: Row, engine: KitEngine, adapter: CaptureAdapter, model: str, http: aiohttp.ClientSession
) -> Session:
    mark = f"kit-{secrets.token_hex(5)}-mark"
    engine.plan(mark, row.check.plan, row.check.rewrite)
    name = f"{row.check.name.replace(' ', '-')}.{row.dialect.name}.{row.style}"
    door = await asyncio.to_thread(adapter.open_door, name)
    return Session(
        mark=mark,
        dialect=row.dialect,
        is_streamed=row.is_streamed,
        door=door,
        model=model,
        engine=engine,
        http=http,
    )


def _read_all(adapter: CaptureAdapter) -> list[RecordedAnswer] | None:
    found = adapter.read_records()
    return None if found is None else list(found)


def _assign(sessions: Iterable[Session], records: Iterable[RecordedAnswer]) -> dict[str, list[RecordedAnswer]]:
    """Return each check's records: those that have its mark, or whose prompt ids are those of a request of it."""
    by_mark: dict[str, list[RecordedAnswer]] = {session.mark: [] for session in sessions}
    by_prompt = {tuple(one.prompt_token_ids): session.mark for session in sessions for one in session.samples()}
    for record in records:
        text = json.dumps((record.messages, record.message))
        mark = next((one for one in by_mark if one in text), None)
        mark = mark or by_prompt.get(tuple(record.prompt_token_ids or ()))
        if mark is not None:
            by_mark[mark].append(record)
    return by_mark


def _judge(row: Row, session: Session, records: list[RecordedAnswer], members: frozenset[Member]) -> CheckResult:
    names = {"check": row.check.name, "dialect": row.dialect.name}
    case = Case(answers=session.answers, samples=session.samples(), records=records, recorded=members)
    judged = list(row.check.judge(case))
    absent = [one.what for one in judged if isinstance(one, NotClaimed)]
    failed = next(_failures(judged), None)
    if failed is None:
        result = "pass" if any(isinstance(one, Claim) for one in judged) else "not claimed"
        return CheckResult(**names, style=row.style, result=result, not_claimed=absent)
    expected, got = _cut_texts(failed.expected, failed.found)
    return CheckResult(
        **names, style=row.style, result="fail", not_claimed=absent, subject=failed.subject, expected=expected, got=got
    )


def _leave_out(row: Row, what: str) -> CheckResult:
    return CheckResult(
        check=row.check.name, dialect=row.dialect.name, style=row.style, result="not claimed", not_claimed=[what]
    )


def _failures(judged: Iterable[Judgement]) -> Iterator[Claim]:
    yield from (one for one in judged if isinstance(one, Claim) and not one.holds)


def _cut_texts(expected: str, got: str) -> tuple[str, str]:
    """Cut two texts to where they differ."""
    if max(len(expected), len(got)) <= _SHOWN:
        return expected, got
    same = next((n for n, (one, other) in enumerate(zip(expected, got, strict=False)) if one != other), 0)
    begin = max(0, same - _SHOWN // 4)
    head = "…" if begin else ""
    return head + expected[begin : begin + _SHOWN], head + got[begin : begin + _SHOWN]
