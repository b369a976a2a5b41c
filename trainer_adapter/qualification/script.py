"""The fixed script: what the scripted model does in each part of a check, whatever the agent's tools are called.

A part is a list of turns of the main conversation. Side calls, summaries and sub-agents are recognised by what they
ask, and answered beside it: the order in which they come does not matter.
"""

import json
import re
from collections.abc import Iterator, Sequence
from string import Template
from typing import TypeAlias, cast

import msgspec
from aiohttp import web

from agent_layer.local import ScriptAnswer, ScriptedEngine, ScriptPrompt
from agent_layer.schema import JsonObject, as_json_objects
from envs.harnesses import Harness, ToolShape, fill_tool
from trainer_adapter.qualification.render import Recording

PROMPT = "Do what is to be done here, step by step."
_PART = "PART-OF-THE-CHECK"
"""Stands in what a sub-agent is asked."""
_SLOW_SECONDS = 0.05
NUM_SLOW_WORDS = 400


class Shell(msgspec.Struct, frozen=True):
    """The model calls the shell, once for each command, all at once."""

    commands: tuple[str, ...]
    output: tuple[str, ...] = ()
    """Words that no command holds, and the answers of the shell do."""


class Delegate(msgspec.Struct, frozen=True):
    """The model starts sub-agents, all at once."""

    number: int


class Wait(msgspec.Struct, frozen=True):
    """The model waits for one of the sub-agents that it started."""

    position: int


class Refuse(msgspec.Struct, frozen=True):
    """The engine answers with a status."""

    status: int


class Speak(msgspec.Struct, frozen=True):
    """The model answers in text, slowly if it is to be interrupted."""

    text: str
    is_slow: bool = False


Turn: TypeAlias = Shell | Delegate | Wait | Refuse | Speak


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout of the check."""

    name: str
    turns: Sequence[Turn]
    is_cut: bool = False
    """The agent is killed while the first slow answer streams, and started again to continue."""
    is_long: bool = False
    """Its configuration names a short context."""


def list_parts(harness: Harness) -> list[Part]:
    """Return the parts that this agent can take."""
    end = Speak("All is done.")
    if harness.shell is None:
        edit = Speak(_write_edit(harness, "first"))
        parts = [
            Part(name="edit", turns=[edit]),
            Part(name="retry", turns=[Refuse(503), Speak(_write_edit(harness, "again"))]),
        ]
        cut = [Speak(_slow_text(), is_slow=True), edit]
        return [*parts, Part(name="cut and resume", turns=cut, is_cut=True)] if harness.resume_arguments else parts
    # without a substitution, which some agents refuse
    one = Shell(("printf first%%word > notes.txt; cat notes.txt",), ("first%word",))
    two = Shell(("printf second%%word", "printf third%%word"), ("second%word", "third%word"))
    parts = [Part(name="tools", turns=[one, two, end])]
    if harness.sub_agent is not None:
        waits = [] if harness.waits is None else [Wait(0), Wait(1)]
        parts.append(Part(name="sub-agent", turns=[one, Delegate(1), *waits[:1], end]))
        parts.append(Part(name="two sub-agents", turns=[Delegate(2), *waits, end]))
    rounds: list[Turn] = [Shell((f"echo round {at}; yes done | head -n 300",)) for at in range(1, 41)]
    parts.append(Part(name="forty turns", turns=[*rounds, end], is_long=True))
    parts.append(Part(name="retry", turns=[one, Refuse(503), two, end]))
    if harness.resume_arguments is not None:
        slow = Speak(_slow_text(), is_slow=True)
        parts.append(Part(name="cut and resume", turns=[one, slow, two, end], is_cut=True))
    return parts


def _write_edit(harness: Harness, text: str) -> str:
    return Template(harness.edit or "$command").substitute(command=text)


def _slow_text() -> str:
    return " ".join(f"word{number}" for number in range(NUM_SLOW_WORDS))


class ScriptedModel:
    """The model of one part; its call is the engine's script.

    Args:
        harness: names its tools, and the texts by which its other calls are known.
        turns: of the main conversation.
        engine: slows down where the script says.
    """

    def __init__(self, harness: Harness, turns: Sequence[Turn], engine: ScriptedEngine) -> None:
        self._harness, self._engine = harness, engine
        self.left = list(turns)
        """Turns that have not been asked for."""
        self.num_side_calls = self.num_summaries = self.num_delegated = 0
        """``num_delegated``: sub-agents that asked."""
        self.recordings: list[Recording] = []
        """Calls of the policy, those of sub-agents included, but for refused and slow ones."""
        self.unexpected: list[str] = []
        """Ends of main requests behind the last turn."""
        self.output: list[str] = []
        """Words that the shell was to print and no request has shown."""

    def __call__(self, prompt: ScriptPrompt) -> ScriptAnswer:
        """Answer one request."""
        self._engine.token_seconds = 0.0
        answer, is_policy = self._answer(prompt)
        if is_policy and not self._engine.token_seconds:
            message: JsonObject = {"role": "assistant", **(answer if isinstance(answer, dict) else {"content": answer})}
            self.recordings.append(Recording(messages=prompt.messages, tools=prompt.tools, answer=message))
        return _split_lines(answer) if isinstance(answer, str) else answer

    def _answer(self, prompt: ScriptPrompt) -> tuple[str | JsonObject, bool]:
        """Return the answer, and whether the policy gives it."""
        texts = [_read_text(message) for message in prompt.messages]
        everything = "\n".join(texts)
        self.output = [one for one in self.output if one not in everything]
        if any(call.pattern and re.search(call.pattern, everything) for call in self._harness.side_calls):
            self.num_side_calls += 1
            return "a short title", False
        ends = f"{texts[0]}\n{texts[-1]}"
        if self._harness.compaction and re.search(self._harness.compaction, ends):
            self.num_summaries += 1
            return "<summary> everything so far went well </summary>", True
        roles = [one.get("role") for one in prompt.messages]
        prompts = [at for at, text in enumerate(texts) if _PART in text and roles[at] == "user"]
        if prompts:  # answers before the last of these are an agent's own: some begin their sub-agents with one
            return self._answer_part(prompt, is_first="assistant" not in roles[prompts[-1] :]), True
        return self._answer_main(texts), True

    def _answer_part(self, prompt: ScriptPrompt, *, is_first: bool) -> str | JsonObject:
        self.num_delegated += is_first
        if is_first and self._harness.shell is not None and _offers(prompt, self._harness.shell):
            return self._call([fill_tool(self._harness.shell, command="echo part")], "I look at my part.")
        return "My part is done."

    def _answer_main(self, texts: Sequence[str]) -> str | JsonObject:
        if not self.left:
            self.unexpected.append(texts[-1][-200:])
            return "There is nothing left to do."
        turn = self.left.pop(0)
        match turn:
            case Refuse(status=status):
                raise web.HTTPServiceUnavailable(text="overloaded") if status == 503 else web.HTTPBadGateway
            case Speak(text=text, is_slow=is_slow):
                self._engine.token_seconds = _SLOW_SECONDS if is_slow else 0.0
                finish = self._harness.finish
                is_end = finish is not None and not self.left and not is_slow
                return self._call([fill_tool(finish)], text) if is_end and finish else text
            case Shell(commands=commands):
                assert self._harness.shell is not None
                self.output += turn.output
                return self._call([fill_tool(self._harness.shell, command=one) for one in commands], "I run it.")
            case Wait(position=position):
                assert self._harness.waits is not None
                started = [*dict.fromkeys(re.findall(self._harness.agent_id, "\n".join(texts))), "none", "none"]
                return self._call([fill_tool(self._harness.waits, agent=started[position])], "I wait.")
            case Delegate(number=number):
                assert self._harness.sub_agent is not None
                parts = [f"{_PART} {one}: look around." for one in range(number)]
                return self._call([fill_tool(self._harness.sub_agent, prompt=one) for one in parts], "I hand it on.")

    def _call(self, calls: Sequence[tuple[str, JsonObject]], text: str) -> JsonObject:
        return {
            "reasoning": "let me see",
            "content": f"{text} ({len(self._engine.calls)})",
            "tool_calls": [*self._write_calls(calls)],
        }

    def _write_calls(self, calls: Sequence[tuple[str, JsonObject]]) -> Iterator[JsonObject]:
        for name, arguments in calls:
            function = {"name": name, "arguments": json.dumps(arguments)}
            yield {
                "id": f"call_{len(self._engine.calls)}_{name}_{len(function['arguments'])}_{id(arguments) % 9973}",
                "type": "function",
                "function": function,
            }


def _split_lines(text: str) -> list[str]:
    """Return the words of a text, with the line breaks before them, which the engine keeps only inside of words."""
    lines = [line.split() or [""] for line in text.split("\n")]
    return [
        f"\n{word}" if at and not place else word for at, line in enumerate(lines) for place, word in enumerate(line)
    ]


def _offers(prompt: ScriptPrompt, tool: ToolShape) -> bool:
    return any((one.get("function") or {}).get("name") == tool.name for one in prompt.tools or ())  # type: ignore[union-attr]


def _read_text(message: JsonObject) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in as_json_objects(cast("object", content)))
    return str(content or "")


def find_fault(
    model: ScriptedModel, part: Part, harness: Harness, *, num_aux: int, num_cut: int, num_agents: int
) -> str | None:
    """Return how a rollout differs from the script; None: it does not.

    Args:
        model: after the rollout.
        part: what the model was to do.
        harness: the agent.
        num_aux: steps that are recorded as side calls.
        num_cut: sampled tokens that are not trained because their stream was cut.
        num_agents: agents that have a name and trained tokens.
    """
    num_started = sum(turn.number for turn in part.turns if isinstance(turn, Delegate))
    is_compacted = part.is_long and harness.compact_tokens is not None
    faults = {
        f"all {len(part.turns)} turns to be asked for, found {len(model.left)} left": model.left,
        f"no request behind the last turn, found {len(model.unexpected)}: …{model.unexpected[:1]}": model.unexpected,
        f"its shell to print {', '.join(model.output)}, found no such answer": model.output,
        "it to summarise its conversation, found no such request": is_compacted and not model.num_summaries,
        f"{num_started} sub-agents to ask, found {model.num_delegated}": model.num_delegated < num_started,
        f"{num_started} sub-agents with names and rows of their own, found {num_agents}":
            harness.names_agents and num_agents != num_started,
        f"the {model.num_side_calls} side calls of its declaration to be aux, found {num_aux} steps that are":
            model.num_side_calls != num_aux,
        f"no stream to be cut, found {num_cut} tokens in streams that were": num_cut and not part.is_cut,
    }  # fmt: skip
    return next((f"expected {text}" for text, is_so in faults.items() if is_so), None)
