"""Rules that lead the model name of a request to the run's policy or to an external model.

``{"gpt-4*": "openai/gpt-4o-mini", "judge": "anthropic/claude-sonnet-4", "*": "policy"}``: the first pattern that fits
decides, and a name that fits none means the policy.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import BadInputError

POLICY: Final = "policy"
_MAX_REMEMBERED = 1000
"""Agents choose the names, so not all of them are kept."""


class ModelNames:
    """The rules, with a cache of names.

    Args:
        rules: by pattern ``policy``, or a model as LiteLLM names it.
    """

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._rules = rules
        self._found: dict[str, str | None] = {}

    @property
    def needs_provider(self) -> bool:
        """Whether any name leads to one."""
        return any(target != POLICY for target in self._rules.values())

    def provider_model(self, name: str) -> str | None:
        """Return the external model that this name stands for; None: the policy."""
        if not self._rules:
            return None
        if name not in self._found:
            if len(self._found) >= _MAX_REMEMBERED:
                self._found.clear()
            target = next((target for pattern, target in self._rules.items() if fnmatchcase(name, pattern)), POLICY)
            self._found[name] = None if target == POLICY else target
        return self._found[name]


def read_model_names(setting: str | None) -> ModelNames:
    """Read the setting ``models``.

    Args:
        setting: a JSON object, or the path of a file with one; None: every name is the policy.

    Raises: BadInputError: the setting is neither.
    """
    if setting is None:
        return ModelNames({})
    try:
        text = setting if setting.lstrip().startswith("{") else Path(setting).read_text(encoding="utf-8")
        return ModelNames(msgspec.json.decode(text, type=dict[str, str]))
    except (OSError, msgspec.DecodeError) as error:
        raise BadInputError(
            f"setting models: expected a JSON object of patterns and models, or a file with one, found {error}; correct"
            " AGENT_LAYER_MODELS"
        ) from error


class ExternalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that another party serves. Its answers are never trained on: its weights are not the run's."""

    url: str
    """Address of its server, or of LiteLLM, without /v1."""
    model: str
    """Name of the model at that server."""
    api_key: str | None
    """None: the server needs none."""
    is_policy: bool = False
    """It answers as the policy: sampling overrides of tasks apply, and its calls are not ``aux``."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What a request to it must carry."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
