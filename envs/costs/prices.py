"""Prices of tokens, engines and sandboxes, as the setting ``prices`` names them."""

import math
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from agent_layer.errors import BadInputError

_MILLION = 1e6


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Price of one model, in US dollars per million tokens; in ``PriceList`` in its currency."""

    prompt: float
    response: float
    cached: float | None = None
    """Price of prompt tokens that the engine had cached; None: as the others."""

    def cost(self, prompt_tokens: int, response_tokens: int, cached_tokens: int = 0) -> float:
        """Return what a call costs; ``cached_tokens`` are part of ``prompt_tokens``."""
        cached = self.prompt if self.cached is None else self.cached
        fresh_tokens = prompt_tokens - cached_tokens
        return (self.prompt * fresh_tokens + cached * cached_tokens + self.response * response_tokens) / _MILLION


class _CheckedPrice(Price, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One in a file, where a word may be misspelt."""


class PriceList(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What things cost. A call costs tokens where its model has a price, and the engine's time otherwise."""

    currency: str = "USD"
    engine_hour: float | None = None
    """Price of an hour that a call is open: an engine's rent, divided by the calls that it serves at a time."""
    sandbox_hour: float | None = None
    """Price of an hour that a box exists."""
    tokens: dict[str, _CheckedPrice] = {}
    """Prices by name of the model, in which ``*`` stands for anything; the first that fits counts."""

    def find(self, model: str | None) -> Price | None:
        """Return the price of a model's tokens; None: it has none."""
        return next((price for name, price in self.tokens.items() if fnmatchcase(model or "", name)), None)


def read_prices(source: str | None) -> PriceList | None:
    """Read prices from a file (``.toml``, ``.json``), or from the text of one; None: there are none.

    Raises: BadInputError: the file cannot be read, or a price is unknown, negative or not finite.
    """
    if not source:
        return None
    is_inline = "=" in source or source.lstrip().startswith("{")
    try:
        text = source if is_inline else Path(source).read_text()
        decode = msgspec.json.decode if text.lstrip().startswith("{") else msgspec.toml.decode
        prices = decode(text, type=PriceList)
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(
            f"prices {source!r}: expected a TOML or JSON file, or its text, found {error}; correct AGENT_LAYER_PRICES,"
            " for example engine_hour = 2.5"
        ) from error
    numbers = [prices.engine_hour, prices.sandbox_hour]
    numbers += [number for one in prices.tokens.values() for number in (one.prompt, one.response, one.cached)]
    if not all(number is None or 0 <= number < math.inf for number in numbers):
        raise BadInputError(
            f"prices {source!r}: expected finite prices, none below 0, found another; correct AGENT_LAYER_PRICES"
        )
    return prices
