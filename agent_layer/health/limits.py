"""Thresholds of a configuration in place of those of the catalogue."""

from collections.abc import Mapping
from math import isfinite, nan
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from agent_layer.errors import BadInputError
from agent_layer.health.catalogue import CATALOGUE, LIVE, MAX_WINDOW, HealthEntry, LiveEntry
from agent_layer.times import parse_span


class HealthLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of one entry in a configuration; what is left out stays as in the catalogue."""

    warn: float | UnsetType | None = UNSET
    stop: float | UnsetType | None = UNSET
    steps: Annotated[int, Meta(ge=1, le=MAX_WINDOW)] | UnsetType = UNSET


def set_limits(config: Mapping[str, HealthLimits | str | bool]) -> tuple[HealthEntry, ...]:
    """Return the catalogue with the limits of a configuration, without what it turns off.

    Args:
        config: by name of the entry; ``off``, which YAML reads as false, turns one off.

    Raises: BadInputError: there is no such entry, something else than limits or 'off', or a stop before the warning.
    """
    names = {entry.name: entry for entry in CATALOGUE}
    for name, limits in config.items():
        if name not in names:
            raise BadInputError(
                f"health: expected names among {', '.join(sorted(names))}, found {name!r}; correct the configuration"
            )
        if not isinstance(limits, HealthLimits) and limits not in ("off", False):
            raise BadInputError(
                f"health.{name}: expected 'off' or some of warn, stop and steps, found {limits!r}; correct it"
            )
        if isinstance(limits, HealthLimits):
            _check_order(names[name], limits)
    return tuple(
        _with_limits(entry, limits)
        for entry in CATALOGUE
        if isinstance(limits := config.get(entry.name, HealthLimits()), HealthLimits)
    )


def _check_order(entry: HealthEntry, limits: HealthLimits) -> None:
    """Raise BadInputError for a warning that never comes, because the run stops before; only both can contradict."""
    warn, stop = limits.warn, limits.stop
    if not isinstance(warn, int | float) or not isinstance(stop, int | float):
        return
    if stop > warn if entry.is_low_bad else stop < warn:
        before = "at most" if entry.is_low_bad else "at least"
        raise BadInputError(
            f"health.{entry.name}: expected a stop of {before} the warning {warn:g}, found {stop:g}; correct one"
        )


def _with_limits(entry: HealthEntry, limits: HealthLimits) -> HealthEntry:
    given = {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not UNSET}
    return msgspec.structs.replace(entry, **given)


def set_live_limits(text: str | None) -> tuple[LiveEntry, ...]:
    """Return the alarms of this moment with the limits of a setting, without what it turns off.

    Args:
        text: ``NAME=LIMIT`` with spaces between, where a limit is a number, a span such as ``10m``, or ``off``.

    Raises: BadInputError: there is no such alarm, or a limit is neither.
    """
    given = dict(_parse_limit(word) for word in (text or "").split())
    return tuple(
        msgspec.structs.replace(entry, warn=given.get(entry.name, entry.warn))
        for entry in LIVE
        if given.get(entry.name, entry.warn) is not None
    )


def _parse_limit(word: str) -> tuple[str, float | None]:
    """Return name and limit; None: the alarm is off."""
    name, _, limit = word.partition("=")
    entry = next((one for one in LIVE if one.name == name), None)
    if entry is None:
        raise BadInputError(
            f"alarm limit {word!r}: expected a name among {', '.join(one.name for one in LIVE)}; correct"
            " AGENT_LAYER_ALARM_LIMITS"
        )
    if limit == "off":
        return name, None
    try:
        number = float(limit) if entry.unit != "seconds" or not limit[-1:].isalpha() else parse_span(limit, name)
    except (ValueError, BadInputError):
        number = nan
    if not isfinite(number) or number < 0:
        raise BadInputError(
            f"alarm limit {word!r}: expected a number ({entry.unit}), a span such as 10m, or off; correct"
            " AGENT_LAYER_ALARM_LIMITS"
        )
    return name, number
