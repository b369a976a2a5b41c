"""Prices of evaluated models: those that the caller gives, else LiteLLM's table, read without importing it."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from envs.costs import Price

_TABLE = "model_prices_and_context_window_backup.json"
_MILLION = 1e6


class Prices:
    """Finds prices by the names that steps record.

    Args:
        policy: of the evaluated model, instead of the table's; None: the table's.
        model: name of the evaluated model, which judges and simulators may ask too.
    """

    def __init__(self, policy: Price | None = None, model: str | None = None) -> None:
        self._policy = policy
        self._model = model

    def find(self, model: str | None, *, is_policy: bool) -> Price | None:
        """Return the price of a model; None: not known."""
        if self._policy is not None and (is_policy or (model is not None and model == self._model)):
            return self._policy
        if model is None:
            return None
        table = _read_table()
        entry = table.get(model) or table.get(model.partition("/")[2])
        if entry is None or entry.input_cost_per_token is None or entry.output_cost_per_token is None:
            return None
        return Price(prompt=entry.input_cost_per_token * _MILLION, response=entry.output_cost_per_token * _MILLION)


class _Entry(msgspec.Struct):
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None


@cache
def _read_table() -> dict[str, _Entry]:
    """Return LiteLLM's table; empty where it is not installed. Entries of another form are left out."""
    package = find_spec("litellm")
    if package is None or package.origin is None:
        return {}
    try:
        rows = msgspec.json.decode((Path(package.origin).parent / _TABLE).read_bytes(), type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError):
        return {}
    found: dict[str, _Entry] = {}
    for name, row in rows.items():
        try:
            found[name] = msgspec.json.decode(row, type=_Entry)
        except msgspec.DecodeError:
            continue
    return found
