"""Gymnasium: environments with discrete or text actions, named ``gymnasium:ID`` or ``gymnasium:ID?option=value``.

The first message has the environment's own words on its actions, observations and rewards, where its docstring has
them, and how to answer. An observation is its value as JSON, floats with 6 digits, a text as it is. Below it
stands what the environment draws, where it draws text (``render_mode="ansi"``): a highlighted cell as ``[x]``, a
coloured one as ``(x)``.

An action stands in ``<action>`` tags, the last ones, or is the whole answer: a number, the words of the docstring for
it, a JSON list for several, or a text. One that the environment does not know is answered, and changes nothing.
"""

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, Task
from envs.adapters.extras import import_extra, read_options
from envs.env_context import derive_seed
from envs.environment import StepResult

_EXTRA: Final = "gymnasium"
_OWN_VERSION: Final = "1"
_SECTIONS: Final = ("Description", "Action Space", "Observation Space", "Rewards", "Episode End")
_NAMED_ACTION: Final = re.compile(r"^\s*-\s*(\d+):\s*(.+?)\s*$", re.MULTILINE)
_TAGGED: Final = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_COLOURED: Final = re.compile(r"\x1b\[([\d;]*)m((?:(?!\x1b\[0m).)*)\x1b\[0m")
_ESCAPE: Final = re.compile(r"\x1b\[[\d;]*m")
_HIGHLIGHTS: Final = frozenset(map(str, [*range(41, 48), *range(100, 108)]))
_MAX_ILLEGAL: Final = 8
"""Answers in a row that are no action, after which the episode ends."""
_DIGITS: Final = 6


def open_environment(text: str) -> type["GymnasiumEnvironment"]:
    """Return the environment class of ``ID`` or ``ID?option=value``; options are arguments of ``gymnasium.make``.

    Raises: BadInputError: the package is not installed, has no such environment, or its actions are neither discrete
        nor text.
    """
    env_id, options = read_options(text)
    package: Any = import_extra("gymnasium", _EXTRA)
    try:
        env = package.make(env_id, disable_env_checker=True, **options)
    except Exception as error:  # the package may raise anything
        raise BadInputError(f"environment {_EXTRA}:{text}: cannot be made, {error}; correct name or options") from error
    _check_spaces(package.spaces, env, f"{_EXTRA}:{text}")
    modes = cast("Sequence[str]", env.metadata.get("render_modes", ()))
    drawing = {"render_mode": "ansi"} if "ansi" in modes and "render_mode" not in options else {}
    env.close()
    declared = {
        "env_id": env_id,
        "options": {**drawing, **options},
        "version": f"{package.__version__}-{_OWN_VERSION}",
        "__doc__": f"{_EXTRA}:{text}. Contract: ``Environment``.",
    }
    return type("GymnasiumEnvironment", (GymnasiumEnvironment,), declared)


class GymnasiumEnvironment:
    """One episode, seeded by the task's seed; the rewards of its steps add up. Contract: ``Environment``.

    A task's input, if it is a text, stands before the first message.
    """

    env_id: ClassVar[str]
    options: ClassVar[JsonObject]
    version: ClassVar[str]

    def __init__(self) -> None:
        self._spaces: Any = import_extra("gymnasium.spaces", _EXTRA)
        self._env: Any = import_extra("gymnasium", _EXTRA).make(self.env_id, disable_env_checker=True, **self.options)
        sections = _read_sections(cast("type[object]", type(self._env.unwrapped)))
        self._intro = "\n\n".join(f"{title}:\n{text}" for title, text in sections.items())
        named = _NAMED_ACTION.findall(sections.get("Action Space", ""))
        self._numbers: Mapping[str, int] = {name.casefold(): int(number) for number, name in named}
        self._state: dict[str, object] = {"steps": 0, "reward": 0.0, "terminated": False, "truncated": False}
        self._num_illegal = 0

    async def reset(self, task: Task) -> object:
        """Return the rules and the first observation."""
        observation, _ = await asyncio.to_thread(self._env.reset, seed=derive_seed(task))
        before = [task.input] if isinstance(task.input, str) and task.input else []
        legal = f"Answer with your action between <action> and </action>: {self._describe_actions()}."
        return "\n\n".join([*before, *([self._intro] if self._intro else []), legal, self._show(observation)])

    async def step(self, action: str) -> StepResult:
        """Take the action that a text names; a text that names none changes nothing, but too many in a row end."""
        tagged = _TAGGED.findall(action)
        word = (tagged[-1] if tagged else action).strip()
        chosen = self._read_action(word)
        if chosen is None:
            self._num_illegal += 1
            text = (
                f"{word[:80]!r} is no action. Answer with {self._describe_actions()}, between <action> and </action>."
            )
            return StepResult(observation=text, done=self._num_illegal >= _MAX_ILLEGAL)
        self._num_illegal = 0
        observation, reward, terminated, truncated, _ = await asyncio.to_thread(self._env.step, chosen)
        earned, before = float(reward), cast("dict[str, float]", self._state)
        self._state = {
            "steps": before["steps"] + 1,
            "reward": before["reward"] + earned,
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }
        return StepResult(observation=self._show(observation), reward=earned, done=bool(terminated or truncated))

    def state(self) -> object:
        """Return steps, reward so far, and whether the episode terminated or was truncated."""
        return self._state

    async def close(self) -> None:
        """Close the environment."""
        await asyncio.to_thread(self._env.close)

    def _read_action(self, word: str) -> object:
        """Return the action that a word names; None: the space has none of it."""
        space, spaces = self._env.action_space, self._spaces
        if isinstance(space, spaces.Text):
            return word if space.contains(word) else None
        found: object = self._numbers.get(word.casefold()) if isinstance(space, spaces.Discrete) else None
        try:
            found = msgspec.json.decode(word, type=int | list[int]) if found is None else found
        except (msgspec.DecodeError, RecursionError):
            return None
        if isinstance(space, spaces.Discrete) != isinstance(found, int):
            return None
        try:
            action = found if isinstance(found, int) else import_extra("numpy", _EXTRA).array(found, dtype=space.dtype)
        except (OverflowError, ValueError):
            return None
        return action if space.contains(action) else None

    def _describe_actions(self) -> str:
        space, spaces = self._env.action_space, self._spaces
        if isinstance(space, spaces.Text):
            return f"a text of {space.min_length} to {space.max_length} of the characters {''.join(space.characters)}"
        if isinstance(space, spaces.Discrete):
            first, last = int(space.start), int(space.start + space.n - 1)
            names = [f"{number} ({name})" for name, number in self._numbers.items() if first <= number <= last]
            return f"one of {', '.join(names)}" if names else f"one number from {first} to {last}"
        highest = [int(one) - 1 for one in space.nvec.flat] if isinstance(space, spaces.MultiDiscrete) else 1
        return f"a JSON list of {int(space.shape[0])} whole numbers, each from 0 to {highest}"

    def _show(self, observation: object) -> str:
        value = _as_plain(observation)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        drawn = self._env.render() if self.options.get("render_mode") == "ansi" else None
        return f"{text}\n{_strip_colours(drawn)}" if isinstance(drawn, str) else text


def _check_spaces(spaces: Any, env: Any, name: str) -> None:  # noqa: ANN401  # the package is not typed for us
    actions, seen = env.action_space, env.observation_space
    is_list = isinstance(actions, spaces.MultiDiscrete | spaces.MultiBinary) and len(actions.shape) == 1
    if not is_list and not isinstance(actions, spaces.Discrete | spaces.Text):
        raise BadInputError(
            f"environment {name}: expected discrete or text actions, found {actions}; wrap it in an"
            " environment of yours"
        )
    if isinstance(seen, spaces.Box) and len(seen.shape) > 2:
        raise BadInputError(
            f"environment {name}: expected observations that a text can show, found images {seen.shape}; wrap it in an"
            " environment of yours"
        )


def _read_sections(kind: type[object]) -> dict[str, str]:  # kept: the form of their docstrings
    """Return the sections of a docstring that a player needs, by title."""
    parts = re.split(r"^[ \t]*##+ +(.+?)[ \t]*$", inspect.getdoc(kind) or "", flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {title: found[title].strip() for title in _SECTIONS if found.get(title, "").strip()}


def _as_plain(value: object) -> object:
    """Return an observation as JSON."""
    match value:
        case Mapping():
            return {str(key): _as_plain(one) for key, one in cast("Mapping[object, object]", value).items()}
        case list() | tuple():
            return [_as_plain(one) for one in cast("Sequence[object]", value)]
        case float():
            return float(f"{value:.{_DIGITS}g}")
        case None | str() | bool() | int():
            return value
        case _ if hasattr(value, "tolist"):  # of numpy
            return _as_plain(cast("Callable[[], object]", getattr(value, "tolist"))())  # noqa: B009  # it has no type
        case _:
            return str(value)


def _strip_colours(drawn: str) -> str:
    def mark(found: re.Match[str]) -> str:
        is_highlight = bool(_HIGHLIGHTS & set(found[1].split(";")))
        inner = _ESCAPE.sub("", found[2])
        return f"[{inner}]" if is_highlight else f"({inner})"

    return _ESCAPE.sub("", _COLOURED.sub(mark, drawn)).rstrip("\n")
