"""Scripts (functions that write a scripted engine's answers), their tokenizer, and the words of an answer.

The tokenizer has one token per word; its ids can be computed from the words. A conversation is rendered message by
message, ``<role> word … <end>``, and a prompt ends with ``<assistant>``. An answer is ``word … <end>``. So the prompt
of the next turn begins with the prompt and the answer of this one.
"""

import importlib.util
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import TypeAlias, cast

from aiohttp import web

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, as_json_object, as_json_objects

END = "<end>"


def word_token_id(word: str) -> int:
    """Return the token id of a word, without the line breaks around it: 31 bits of its CRC-32."""
    return zlib.crc32(word.strip().encode()) & 0x7FFFFFFF


def token_logprob(token_id: int) -> float:
    """Return the engine's log-probability of a token: between -2 and 0, a function of its id."""
    return -(token_id % 2000) / 1000


def render_prompt(
    messages: Iterable[Mapping[str, object]], tools: object = None, *, is_prefilled: object = False
) -> list[str]:
    """Render a conversation as the words of a prompt; the last message may be the beginning of the answer."""
    words = ["<tools>", *_canonical(tools).split(), END] if tools else []
    for message in messages:
        words += [f"<{message.get('role', 'user')}>", *message_words(message), END]
    return words[:-1] if is_prefilled else [*words, "<assistant>"]


def message_words(message: Mapping[str, object]) -> list[str]:
    """Return the words of a message: its reasoning, text and tool calls, with arguments in canonical form.

    Reasoning may have the name ``reasoning_content``, as with vLLM 0.31.
    """
    words = _content_text(message.get("content")).split()
    thought = message.get("reasoning_content") if message.get("reasoning") is None else message["reasoning"]
    return [*thought_words(thought), *words, *call_words(message.get("tool_calls"))]


def thought_words(thought: object) -> list[str]:
    """Return the words of a reasoning text, which precedes the answer."""
    return ["<think>", *str(thought).split(), "</think>"] if thought else []


def _content_text(content: object) -> str:
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in as_json_objects(cast("object", content)))
    return str(content or "")


def call_words(calls: object) -> Iterator[str]:
    """Return the words of tool calls; arguments that are not JSON stay unchanged."""
    for call in as_json_objects(calls):
        function = as_json_object(call.get("function"))
        arguments = str(function.get("arguments") or "{}")
        with suppress(ValueError, RecursionError):
            arguments = _canonical(json.loads(arguments))
        yield from ("<tool_call>", str(function.get("name")), *arguments.split(), "</tool_call>")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class ScriptPrompt:
    """The request that a script answers."""

    messages: list[JsonObject]
    tools: list[JsonObject] | None
    choice: int
    body: JsonObject
    """The whole request."""
    weights: Callable[[], str]
    """Returns the directory of the current weights."""

    @property
    def text(self) -> str:
        """Return the words of the last message as one text."""
        return " ".join(message_words(self.messages[-1])) if self.messages else ""

    @property
    def turn(self) -> int:
        """Return the number of answers already in the conversation."""
        return sum(message.get("role") == "assistant" for message in self.messages)


ScriptAnswer: TypeAlias = str | JsonObject | Iterable[str]
"""A text, a whole message (for instance with tool_calls), or an iterator of words, read one by one."""

Script: TypeAlias = Callable[[ScriptPrompt], ScriptAnswer]


def echo(prompt: ScriptPrompt) -> ScriptAnswer:
    """Answer with the text of the last message."""
    return f"you said: {prompt.text}"


def load_script(place: str) -> Script:
    """Load a script from ``FILE.py:function``.

    Raises: BadInputError: there is no such file or function.
    """
    path, _, name = place.rpartition(":")
    spec = importlib.util.spec_from_file_location("agent_layer_script", path) if Path(path).is_file() else None
    if spec is None or spec.loader is None:
        raise BadInputError(f"script {place!r}: expected FILE.py:function, found no such file; check the path")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        raise BadInputError(f"script {place!r}: {_describe(error, path)}; correct the file") from error
    if not callable(script := getattr(module, name, None)):
        raise BadInputError(f"script {place!r}: the file has no function {name!r}; check the name")
    return cast("Script", script)


def ask_script(script: Script, prompt: ScriptPrompt) -> "ScriptedChoice":
    """Return the answer of a script.

    Raises:
        BadInputError: the script refuses the request with this error, fails, or returns no answer. A later word of its
            iterator can, too.
        web.HTTPException: the script answers with a status.
    """
    name, path = getattr(script, "__name__", "script"), _script_path(script)
    try:
        answer: object = script(prompt)
    except (BadInputError, web.HTTPException):
        raise
    except Exception as error:  # whatever the user's function raises
        raise BadInputError(f"script {name!r}: {_describe(error, path)}; correct it") from error
    match answer:
        case str():
            return ScriptedChoice({"content": answer})
        case dict():
            return ScriptedChoice(_check_message(name, path, cast("JsonObject", answer)))
        case Iterable():
            return ScriptedChoice({"content": _checked_words(name, path, cast("Iterable[object]", answer))})
        case _:
            raise _no_answer(name, "a text, a message or words one by one", answer)


def _check_message(name: str, path: str, message: JsonObject) -> JsonObject:
    for call in as_json_objects(message.get("tool_calls")):
        function = as_json_object(call.get("function"))
        if not isinstance(function.get("name"), str):
            raise _no_answer(name, "a name at tool_calls[].function.name", function.get("name"))
        if not isinstance(arguments := function.get("arguments"), str | None):
            raise _no_answer(name, "JSON text at tool_calls[].function.arguments (json.dumps makes it)", arguments)
    match message.get("content"):
        case str() | None:
            return message
        case Iterable():
            return {**message, "content": _checked_words(name, path, cast("Iterable[object]", message["content"]))}
        case other:
            raise _no_answer(name, "text or words at content", other)


def _checked_words(name: str, path: str, words: Iterable[object]) -> Iterator[str]:
    try:
        for word in words:
            yield _checked_word(name, word)
    except BadInputError:
        raise
    except Exception as error:  # whatever the user's iterator raises
        raise BadInputError(f"script {name!r}: {_describe(error, path)}; correct it") from error


def _checked_word(name: str, word: object) -> str:
    if not isinstance(word, str):
        raise _no_answer(name, "words as text", word)
    return word


def _no_answer(name: str, expected: str, found: object) -> BadInputError:
    return BadInputError(f"script {name!r}: expected {expected}, found {found!r:.100}; correct it")


def _script_path(script: Script) -> str:
    """Return the file of a script; empty for one that has none."""
    code = getattr(script, "__code__", None)
    return getattr(code, "co_filename", "")


def _describe(error: Exception, path: str) -> str:
    """Name an error, and the line of the script that led to it."""
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == path]
    number = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
    return f"{type(error).__name__}: {error}" + (f" in line {number} of {path}" if number else "")


@dataclass(frozen=True, slots=True)
class ScriptedChoice:
    """One choice of an answer."""

    message: JsonObject
    """May also contain ``finish_reason``, ``stop_reason``, and ``error`` for an answer that breaks off."""

    def words(self) -> Iterator[tuple[str, JsonObject]]:
        """Return (word, delta) in the order of sampling, the end of turn included."""
        thought = str(self.message.get("reasoning") or "")
        for index, word in enumerate(thought_words(thought)):
            yield word, {"reasoning": thought} if index == 0 else {}
        spoken = self.message.get("content") or ""
        for index, word in enumerate(spoken.split() if isinstance(spoken, str) else cast("Iterable[str]", spoken)):
            yield word, {"content": f" {word}" if index else word}
        for index, call in enumerate(self._calls):
            yield from _call(index, call)
        yield END, {}

    def ending(self, body: JsonObject) -> JsonObject:
        """Return the finish reason as vLLM would: 'stop' if the request named the tool that is called."""
        is_called = self._calls and not isinstance(body.get("tool_choice"), dict)
        reason = self.message.get("finish_reason") or ("tool_calls" if is_called else "stop")
        return {"finish_reason": reason, "stop_reason": self.message.get("stop_reason")}

    @property
    def _calls(self) -> list[JsonObject]:
        return cast("list[JsonObject]", self.message.get("tool_calls") or [])


def _call(index: int, call: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield a tool call: its name with the first word, its arguments with the second and the last."""
    function = cast("dict[str, str]", call["function"])
    arguments = function.get("arguments") or ""
    half = len(arguments) // 2
    words = list(call_words([call]))
    begun = {**call, "index": index, "function": {**function, "arguments": ""}}
    for place, word in enumerate(words):
        more = {1: arguments[:half], len(words) - 1: arguments[half:]}.get(place)
        delta = begun if place == 0 else {"index": index, "function": {"arguments": more}}
        yield word, {"tool_calls": [delta]} if place == 0 or more else {}
