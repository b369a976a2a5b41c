"""Watch over all runs: judges them one after another, and sends what changed."""

from collections.abc import Callable

from agent_layer.alarms.notifier import AlarmNotifier
from agent_layer.alarms.reader import AlarmReader, RunAlarms
from agent_layer.health import LIVE, HealthFinding

_LIVE_NAMES = frozenset(one.name for one in LIVE)


def watch_runs(
    reader: AlarmReader,
    notifier: AlarmNotifier,
    wait: Callable[[], bool],
    show: Callable[[RunAlarms], None] = lambda _: None,
) -> None:
    """Judge all runs until ``wait`` returns False; it is called between two rounds.

    What is found now counts when the round before found it, too: a worker that claims its next rollout has none for a
    moment.
    """
    before: dict[str, frozenset[str]] = {}
    is_first = True
    while is_first or wait():
        is_first = False
        for one in reader.read(reader.list_runs()):
            live = [found for found in one.findings if found.name in _LIVE_NAMES]
            _judge(one, live, before.get(one.run, frozenset()), notifier)
            before[one.run] = frozenset(found.name for found in live)
            show(one)


def _judge(one: RunAlarms, live: list[HealthFinding], before: frozenset[str], notifier: AlarmNotifier) -> None:
    if one.reports:
        notifier.judge_step(one.reports[-1])
    lasting = [finding for finding in live if finding.name in before]
    fresh = {finding.name for finding in live} - before
    notifier.judge(one.run, None, lasting, _LIVE_NAMES - fresh)
