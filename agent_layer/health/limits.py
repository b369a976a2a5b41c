"""Thresholds of a configuration in place of those of the catalogue."""

from collections.abc import Mapping
from math import isfinite, nan
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from agent_layer.errors import BadInputError
from agent_layer.health.checks import LIVE_CHECKS, MAX_WINDOW, STEP_CHECKS, LiveCheck, StepCheck
from agent_layer.times import parse_span


class HealthLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of one check in a configuration; what is left out stays as in the catalogue."""

    warn: float | UnsetType | None = UNSET
    stop: float | UnsetType | None = UNSET
    steps: Annotated[int, Meta(ge=1, le=MAX_WINDOW)] | UnsetType = UNSET


def set_limits(config: Mapping[str, HealthLimits | str | bool]) -> tuple[StepCheck, ...]:
    """Return the catalogue with the limits of a configuration, without what it turns off.

    Args:
        config: by name of the check; ``off``, which YAML reads as false, turns one off.

    Raises: BadInputError: there is no such check, something else than limits or 'off', or a stop before the warning.
    """
    names = {check.name: check for check in STEP_CHECKS}
    for name, limits in config.items():
        if name not in names:
            raise BadInputError(
                f"health: expected names among {', '.join(sorted(names))}, found {name!r}; correct the configuration"
            )
        if not isinstance(limits, HealthLimits) and limits not in ("off", False):
            raise BadInputError(
                f"health.{name}: expected 'off' or some of warn, stop and steps, found {limits!r}; correct it"
            )
        if not isinstance(limits, HealthLimits):
            continue
        warn, stop, is_low_bad = limits.warn, limits.stop, names[name].is_low_bad
        if not isinstance(warn, int | float) or not isinstance(stop, int | float):
            continue  # of two limits, only both together contradict
        if stop > warn if is_low_bad else stop < warn:
            before = "at most" if is_low_bad else "at least"
            raise BadInputError(
                f"health.{name}: expected a stop of {before} the warning {warn:g}, found {stop:g}; correct one"
            )
    return tuple(
        _with_limits(check, limits)
        for check in STEP_CHECKS
        if isinstance(limits := config.get(check.name, HealthLimits()), HealthLimits)
    )


def _with_limits(check: StepCheck, limits: HealthLimits) -> StepCheck:
    given = {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not UNSET}
    return msgspec.structs.replace(check, **given)


def set_live_limits(text: str | None) -> tuple[LiveCheck, ...]:
    """Return the checks of this moment with the limits of a setting, without what it turns off.

    Args:
        text: ``NAME=LIMIT`` with spaces between, where a limit is a number, a span such as ``10m``, or ``off``.

    Raises: BadInputError: there is no such check, or a limit is neither.
    """
    given = dict(_parse_limit(word) for word in (text or "").split())
    return tuple(
        msgspec.structs.replace(check, warn=given.get(check.name, check.warn))
        for check in LIVE_CHECKS
        if given.get(check.name, check.warn) is not None
    )


def _parse_limit(word: str) -> tuple[str, float | None]:
    """Return name and limit; None: the check is off."""
    name, _, limit = word.partition("=")
    check = next((one for one in LIVE_CHECKS if one.name == name), None)
    if check is None:
        raise BadInputError(
            f"alarm limit {word!r}: expected a name among {', '.join(one.name for one in LIVE_CHECKS)}; correct"
            " AGENT_LAYER_ALARM_LIMITS"
        )
    if limit == "off":
        return name, None
    try:
        number = float(limit) if check.unit != "seconds" or not limit[-1:].isalpha() else parse_span(limit, name)
    except (ValueError, BadInputError):
        number = nan
    if not isfinite(number) or number < 0:
        raise BadInputError(
            f"alarm limit {word!r}: expected a number ({check.unit}), a span such as 10m, or off; correct"
            " AGENT_LAYER_ALARM_LIMITS"
        )
    return name, number
