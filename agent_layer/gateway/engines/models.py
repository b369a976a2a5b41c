"""Rules that lead the model name of a request to the run's policy or to an external model.

``{"gpt-4*": "openai/gpt-4o-mini", "judge": "anthropic/claude-sonnet-4", "*haiku*": "aux", "*": "policy"}``: the first
pattern that fits decides, and a name that fits none means the policy. To ``aux`` the policy answers without learning,
and so it does to an agent that asks for a model ``aux``, unless a rule fits that name.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import UNREADABLE

POLICY: Final = "policy"
AUX: Final = "aux"
_OURS: Final = frozenset({POLICY, AUX})
_MAX_REMEMBERED = 1000
"""Agents choose the names, so not all of them are kept."""


class ModelNames:
    """The rules, with a cache of names.

    Args:
        rules: by pattern ``policy``, ``aux``, or a model as LiteLLM names it.
    """

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._rules = {**rules} if AUX in rules else {**rules, AUX: AUX}
        self._found: dict[str, str] = {}

    @property
    def needs_provider(self) -> bool:
        """Whether any name leads to one."""
        return any(target not in _OURS for target in self._rules.values())

    def provider_model(self, name: str) -> str | None:
        """Return the external model that this name stands for; None: the policy."""
        target = self._find_target(name)
        return None if target in _OURS else target

    def is_aux(self, name: str) -> bool:
        """Whether the policy answers to this name, and does not learn from what it says."""
        return self._find_target(name) == AUX

    def _find_target(self, name: str) -> str:
        if name not in self._found:
            if len(self._found) >= _MAX_REMEMBERED:
                self._found.clear()
            targets = (target for pattern, target in self._rules.items() if fnmatchcase(name, pattern))
            self._found[name] = next(targets, POLICY)
        return self._found[name]


def read_model_names(setting: str | None) -> ModelNames:
    """Read the setting ``models``.

    Args:
        setting: a JSON object, or the path of a file with one; None: there is no rule.

    Raises: BadInputError: the setting is neither.
    """
    if setting is None:
        return ModelNames({})
    try:
        text = setting if setting.lstrip().startswith("{") else Path(setting).read_text(encoding="utf-8")
        return ModelNames(msgspec.json.decode(text, type=dict[str, str]))
    except (OSError, *UNREADABLE) as error:
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
