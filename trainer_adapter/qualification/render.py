"""Recordings of a check, rendered again by real chat templates and counted by a real vocabulary.

The scripted engine counts words. Lengths that a user plans with come from Qwen's byte-pair vocabulary, which
``dashscope`` ships, and from chat templates that ``trl`` ships; both are files, and neither package is imported. Marks
of a template count as one token each, as in its own vocabulary.
"""

import base64
import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from agent_layer.schema import JsonObject, as_json_object, as_json_objects
from envs.harnesses import NeededLengths, RenderedFigures

TEMPLATES: Final = ("qwen3", "glm4moe", "gptoss")
_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen splits text before it is encoded (tokenization_qwen.py)."""
_MARKS: Final = re.compile(r"<\|[a-z_]+\|>|</?(?:think|tool_call|tool_response|arg_key|arg_value)>|\[gMASK\]|<sop>")
_ROUND: Final = 1024
"""Needed lengths are multiples of it."""
_QUESTION: Final[JsonObject] = {"role": "user", "content": "?"}


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the policy, in chat form."""

    messages: list[JsonObject]
    tools: list[JsonObject] | None
    answer: JsonObject


class RecordedPart(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one rollout."""

    calls: Sequence[Recording]
    is_long: bool
    """Whether it has many turns."""


class _Template(Protocol):
    def render(self, **values: object) -> str: ...


class _Vocabulary(Protocol):
    def encode(self, text: str, *, allowed_special: str) -> list[int]: ...


def render_recordings(rollouts: Sequence[RecordedPart]) -> list[RenderedFigures]:
    """Render the calls of each rollout by each template; empty where vocabulary or templates are not installed."""
    ranks, folder = _find_file("dashscope", "resources/qwen.tiktoken"), _find_file("trl", "chat_templates")
    if ranks is None or folder is None or find_spec("tiktoken") is None or find_spec("jinja2") is None:
        return []
    texts = {name: (folder / f"{name}.jinja").read_text() for name in TEMPLATES}
    return [_render(name, _compile(text), _load_vocabulary(ranks, text), rollouts) for name, text in texts.items()]


def find_needed_lengths(rendered: Sequence[RenderedFigures], output_tokens: int) -> NeededLengths | None:
    """Return the least lengths that all templates fit into; None: nothing was rendered."""
    if not rendered:
        return None
    lengths = [max(one.first_request for one in rendered) + output_tokens, max(one.short_row for one in rendered)]
    model, row = (-(-length // _ROUND) * _ROUND for length in lengths)
    return NeededLengths(max_model_len=model, max_row_tokens=row)


def _render(
    name: str, template: _Template, vocabulary: _Vocabulary, rollouts: Sequence[RecordedPart]
) -> RenderedFigures:
    first, sampled, rows, short_row = 0, 0, list[int](), 0
    for part in rollouts:
        prompts, whole = list[list[int]](), list[list[int]]()
        for call in part.calls:
            readable = [_read_message(message) for message in call.messages]
            text = template.render(messages=readable, tools=call.tools or None, add_generation_prompt=True)
            prompts.append(vocabulary.encode(text, allowed_special="all"))
            answer = vocabulary.encode(_render_answer(template, call.answer), allowed_special="all")
            whole.append(prompts[-1] + answer)
            sampled += len(answer)
        first = first or len(next(iter(prompts), ()))
        found = measure_rows(prompts, whole)
        rows += found
        short_row = max(short_row, *([] if part.is_long else found), 0)
    return RenderedFigures(
        template=name, first_request=first, longest_row=max(rows, default=0), num_rows=len(rows), row_tokens=sum(rows),
        sampled=sampled, short_row=short_row,
    )  # fmt: skip


def measure_rows(prompts: Sequence[Sequence[int]], whole: Sequence[Sequence[int]]) -> list[int]:
    """Return the lengths of the rows of a rollout: of each call that no later one continues, prompt and answer.

    Args:
        prompts: [num_calls][num_prompt_tokens].
        whole: [num_calls], the prompt and its answer.
    """
    continued = set[int]()
    for at, prompt in enumerate(prompts):
        begun = [one for one in range(at) if prompt[: len(whole[one])] == whole[one]]
        if begun:
            continued.add(max(begun, key=lambda one: len(whole[one])))
    return [len(tokens) for at, tokens in enumerate(whole) if at not in continued]


def _render_answer(template: _Template, answer: JsonObject) -> str:
    """Return what the model writes: its message behind a question, without the question and the line's end."""
    question = template.render(messages=[_QUESTION], tools=None, add_generation_prompt=True)
    whole = template.render(messages=[_QUESTION, _read_message(answer)], tools=None, add_generation_prompt=False)
    return whole.removeprefix(question).rstrip("\n")


def _read_message(message: JsonObject) -> JsonObject:
    """Return a message as engines hand it to a template: text in one piece, arguments as objects."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in as_json_objects(cast("object", content)))
    read: JsonObject = {**message, "content": content or ""}
    calls = as_json_objects(message.get("tool_calls"))
    if reasoning := message.get("reasoning"):
        read["reasoning_content"] = reasoning
        read |= {} if calls and content else {"thinking": reasoning}  # gpt-oss has one place for both beside a call
    if calls:
        read["tool_calls"] = [
            {**call, "function": _read_function(as_json_object(call.get("function")))} for call in calls
        ]
    return read


def _read_function(function: JsonObject) -> JsonObject:
    arguments = function.get("arguments")
    try:
        return {**function, "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments}
    except ValueError:
        return function


def _find_file(package: str, path: str) -> Path | None:
    """Return a file of an installed package, which is not imported."""
    spec = find_spec(package)
    places = [Path(place) / path for place in (spec and spec.submodule_search_locations) or ()]
    return next((place for place in places if place.exists()), None)


def _load_vocabulary(ranks: Path, template: str) -> _Vocabulary:
    from tiktoken import Encoding  # noqa: PLC0415  # an extra

    pieces = (line.split() for line in ranks.read_bytes().splitlines() if line)
    known = {base64.b64decode(token): int(rank) for token, rank in pieces}
    marks = sorted({*_MARKS.findall(template), "<|im_start|>", "<|im_end|>", "<|endoftext|>"})
    special = {mark: len(known) + number for number, mark in enumerate(marks)}
    return cast("_Vocabulary", Encoding("qwen", pat_str=_SPLIT, mergeable_ranks=known, special_tokens=special))


def _compile(text: str) -> _Template:
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415  # an extra

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def fail(message: str) -> None:
        raise ValueError(message)

    def write_json(value: object, *, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    environment.filters["tojson"] = write_json
    environment.globals.update(raise_exception=fail, strftime_now=lambda _: "2026-01-01")  # pyright: ignore[reportCallIssue, reportArgumentType]  # typed by what jinja2 itself puts there
    return cast("_Template", environment.from_string(text))
