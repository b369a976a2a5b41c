"""Keys that pass through to veRL's dataclasses, checked against their fields."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import msgspec
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig

from agent_layer.errors import BadInputError
from trainer_adapter.verl_keys import ENGINE, MODEL, OPTIMIZER, keys_below, refuse_our_keys, suggest

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# veRL carries no types.

_DATACLASSES: dict[str, type] = {OPTIMIZER: FSDPOptimizerConfig, ENGINE: FSDPEngineConfig, MODEL: HFModelConfig}


def check_verl_options(options: Mapping[str, object]) -> None:
    """Raise BadInputError for a key that veRL does not have, that is ours, or whose value has another type."""
    refuse_our_keys(options)
    for section in _DATACLASSES:
        verl_arguments(options, section)


def verl_arguments(options: Mapping[str, object], section: str, **own: object) -> dict[str, object]:
    """Return the arguments of a section's dataclass.

    Args:
        options: the configuration's ``verl``.
        section: ``OPTIMIZER``, ``ENGINE`` or ``MODEL``.
        own: arguments of this trainer; a mapping is merged with the options below its key.

    Raises: BadInputError: veRL has no such key, or the value has another type.
    """
    given = _arguments(_DATACLASSES[section], keys_below(options, section), section)
    merged = {name: {**value, **_as_dict(given.get(name))} for name, value in own.items() if isinstance(value, dict)}
    return own | given | merged


def _arguments(kind: type, options: Mapping[str, object], path: str) -> dict[str, object]:
    names, hints = [field.name for field in fields(kind)], get_type_hints(kind)
    found: dict[str, object] = {}
    for key, value in options.items():
        name, _, below = key.partition(".")
        if name not in names or name.startswith("_"):
            known = (f"{path}.{name}" for name in names if not name.startswith("_"))
            raise BadInputError(f"verl.{path}.{key}: veRL has no such key{suggest(f'{path}.{name}', known)}")
        if below and is_dataclass(hints[name]):
            nested = keys_below(options, name)
            found[name] = hints[name](**_arguments(hints[name], nested, f"{path}.{name}"))
        elif below:
            found[name] = _set_below(_as_dict(found.get(name)), below, value)
        else:
            found[name] = _as_dict(found.get(name)) | value if isinstance(value, dict) else value
    return {name: _check(hints[name], value, f"{path}.{name}") for name, value in found.items()}


def _check(hint: type, value: object, path: str) -> object:
    if is_dataclass(value):
        return value
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise BadInputError(f"verl.{path}: {error}") from error


def _set_below(tree: dict[str, object], path: str, value: object) -> dict[str, object]:
    """Return the tree with a value at a dotted path."""
    name, _, below = path.partition(".")
    return tree | {name: _set_below(_as_dict(tree.get(name)), below, value) if below else value}


def _as_dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
