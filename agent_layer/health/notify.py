"""Messages to people when an alarm begins to fire, and when it is over, through Apprise.

A run never waits for them, and a watch over all runs sends what needs an outside look.
A message that no address took is sent again with the next judgement. What was sent is in the run's file of alarms, so
that neither a restart nor another process sends it a second time.
"""

import logging
import queue
import time
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.health.alarm_file import Alarm, AlarmFile, RunAlarms
from agent_layer.health.checks import LIVE_CHECKS, STEP_CHECKS
from agent_layer.health.findings import HealthFinding
from agent_layer.health.progress import StepProgress
from agent_layer.health.run_health import HealthReader, RunHealth
from agent_layer.infra import install_command
from agent_layer.settings import Settings

# pyright: reportUnknownMemberType=false
# Apprise's types are incomplete.

log = logging.getLogger(__name__)

Tone: TypeAlias = Literal["info", "warning", "failure", "success"]
Sender: TypeAlias = Callable[[str, str, Tone], bool]
"""Sends title and text; returns whether they arrived."""

_LIVE_NAMES: Final = frozenset(one.name for one in LIVE_CHECKS)
_STEP_NAMES: Final = frozenset(one.name for one in STEP_CHECKS)
_MAX_WAITING: Final = 64
_CLOSE_SECONDS: Final = 10.0


class _Judgement(NamedTuple):
    """What was found in a run, and which alarms were looked for."""

    run: str
    at: float | None
    """When the judged step ended; None: found now, not in a step."""
    findings: Sequence[HealthFinding]
    names: Collection[str]


class AlarmNotifier:
    """Sends what changed in a thread of its own."""

    def __init__(self, settings: Settings, senders: Sequence[Sender]) -> None:
        self._settings = settings
        self._senders = senders
        self._waiting: queue.Queue[_Judgement | None] = queue.Queue(_MAX_WAITING)
        self._thread = Thread(target=self._work, name="alarms", daemon=True)
        self._thread.start()

    def judge_step(self, report: StepProgress) -> None:
        """Send what changed with a step."""
        self.judge(report.run, report.ended_at, report.health, _STEP_NAMES)

    def judge(self, run: str, at: float | None, findings: Sequence[HealthFinding], names: Collection[str]) -> None:
        """Send what began to fire or is over since the last judgement; returns at once.

        Args:
            run: the judged run.
            at: when the judged step ended; judgements of older steps change nothing. None: found now, not in a step.
            findings: what fires.
            names: alarms that were looked for; others stay as they are.
        """
        try:
            self._waiting.put_nowait(_Judgement(run, at, list(findings), frozenset(names)))
        except queue.Full:
            log.warning("alarms wait behind slow addresses; a judgement is left out run=%s", run)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Send what waits, for no longer than this."""
        try:
            self._waiting.put(None, timeout=seconds)
        except queue.Full:
            return
        self._thread.join(seconds)

    def _work(self) -> None:
        while (judged := self._waiting.get()) is not None:
            try:
                self._apply(judged)
            except Exception as error:  # noqa: BLE001  # a run is worth more than its messages
                log.warning("alarms of run %s: %s: %s; the run goes on", judged.run, type(error).__name__, error)

    def _apply(self, judged: _Judgement) -> None:
        file = AlarmFile(self._settings, judged.run)
        with file.lock():
            before = file.read()
            if judged.at is not None and judged.at < before.judged_at:
                return
            after = self._send_changes(judged, before)
            if after != before:
                file.write(after)

    def _send_changes(self, judged: _Judgement, before: RunAlarms) -> RunAlarms:
        firing, found = dict(before.firing), {one.name: one for one in judged.findings}
        for name, finding in found.items():
            known = before.firing.get(name)
            if known is None or (known.finding.level, finding.level) == ("warn", "stop"):
                title = f"{'STOP' if finding.level == 'stop' else 'ALARM'} {judged.run}: {name}"
                if self._send(title, str(finding), "failure" if finding.level == "stop" else "warning"):
                    firing[name] = Alarm(finding=finding, at=known.at if known else time.time())
            else:
                firing[name] = msgspec.structs.replace(known, finding=finding)
        for name in before.firing.keys() & set(judged.names) - found.keys():
            past = before.firing[name].finding
            if self._send(f"OVER {judged.run}: {name}", f"It is over: {past.headline}", "success"):
                del firing[name]
        return RunAlarms(judged_at=before.judged_at if judged.at is None else judged.at, firing=firing)

    def _send(self, title: str, text: str, tone: Tone) -> bool:
        """Send to all addresses; return whether one took it, or there is none."""
        arrived = [sender(title, text, tone) for sender in self._senders]
        if not all(arrived):
            log.warning("alarm %r: %d of %d addresses did not take it", title, arrived.count(False), len(arrived))
        return any(arrived) or not arrived


@contextmanager
def open_notifier(settings: Settings, addresses: Sequence[str] = ()) -> Generator[AlarmNotifier]:
    """Context manager: yields a notifier for these addresses, or else those of the settings.

    Raises: BadInputError: an address cannot be used, or Apprise is not installed.
    """
    notifier = AlarmNotifier(settings, open_senders(addresses or settings.alarm_addresses))
    try:
        yield notifier
    finally:
        notifier.close()


def open_senders(addresses: Sequence[str]) -> list[Sender]:
    """Return what sends to each address; errors name an address by its place, because it holds keys.

    Raises: BadInputError: one cannot be used, or Apprise is not installed.
    """
    if not addresses:
        return []
    try:
        from apprise import Apprise, NotifyType  # noqa: PLC0415  # an extra; it takes a moment to import
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"alarm addresses: expected Apprise to be installed, found no {error.name!r}; run"
            f" {install_command('alarms')}"
        ) from error

    def open_one(number: int, address: str) -> Sender:
        service = Apprise()
        if not service.add(address):
            raise BadInputError(
                f"alarm address {number} of {len(addresses)} ({address.partition('://')[0]}): expected an address that"
                " Apprise knows, such as mailto://, slack:// or json://HOST; correct AGENT_LAYER_ALARM_URLS, or"
                " 'alarms' in the configuration"
            )
        return lambda title, text, tone: bool(service.notify(body=text, title=title, notify_type=NotifyType(tone)))

    return [open_one(number, address) for number, address in enumerate(addresses, 1)]


def watch_runs(
    reader: HealthReader,
    notifier: AlarmNotifier,
    wait: Callable[[], bool],
    show: Callable[[RunHealth], None] = lambda _: None,
) -> None:
    """Judge all runs until ``wait`` returns False; it is called between two rounds.

    What is found now counts when the round before found it, too: a worker that claims its next rollout has none for a
    moment.
    """
    seen: dict[str, frozenset[str]] = {}
    is_first = True
    while is_first or wait():
        is_first = False
        for one in reader.read(reader.list_runs()):
            live = [found for found in one.findings if found.name in _LIVE_NAMES]
            names = frozenset(found.name for found in live)
            before, seen[one.run] = seen.get(one.run, frozenset[str]()), names
            if one.reports:
                notifier.judge_step(one.reports[-1])
            lasting = [found for found in live if found.name in before]
            notifier.judge(one.run, None, lasting, _LIVE_NAMES - (names - before))
            show(one)
