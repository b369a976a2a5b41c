"""One attempt at a task in an environment.

    reset ──▶ make room ──▶ ask the model ──▶ text:        environment.step ──▶ observation ─┐
                  ▲                       └─▶ tool calls:  tools, side by side ──▶ answers ──┤
                  └──────────────────────────── until a step or a tool is done ◀─────────────┘

A prompt that outgrows the context makes room as the task's ``history`` says. Where nothing makes room, the episode ends
with ``ContextFullError``, and the rewards so far count.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from aiohttp import ClientSession, ClientTimeout

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject, Task, new_id, read_score
from envs.env_context import AttemptContext, EnvContext, ToolCalls, ToolResult, make_context
from envs.environment import Environment, StepResult, declared_tools
from envs.episode.conversation import Conversation, Prompt
from envs.episode.policy import Answer, Policy
from envs.episode.recording import EpisodeRecorder
from envs.episode.tool_calls import AnyTool, ToolUse, make_definition, readable_message, use_tools
from envs.failures import ContextFullError, ModelCallError, is_out_of_budget
from envs.progress import current_progress
from envs.registry import find_object
from envs.tokens import cut_middle, estimate_tokens
from tracer.core import Rollout

_NO_LIMIT: Final = ClientTimeout(total=None)
"""The gateway limits how long a call takes, the task how long the attempt does."""
_CONTEXT: Final = "context"
_LENGTHS: Final = ("max_completion_tokens", "max_tokens")
_ANSWER_SHARE: Final = 4
"""One part in this many of the context is kept free for an answer, where the task names no length."""
_KEPT_SHARE: Final = 2
"""Once observations are dropped, one part in this many of the context is filled again: each drop costs the engine's
cache, and begins another training sample."""
_SUMMARY_REQUEST: Final = (
    "This conversation is about to outgrow your context. Write a summary from which you can go on without it: what the"
    " task asks, what you found out and changed, what failed, what remains to be done. Answer with the summary only."
)
_SEE_FIRST: Final = "see the answer to the first call"
_SUMMARY: Final = "Summary of your work so far:\n{text}"


async def play(make: Callable[..., Environment], task: Task, rollout: Rollout) -> float | None:
    """Let the model act in an environment until it is done.

    Args:
        make: the environment class.
        task: what it is reset with.
        rollout: the attempt.

    Returns: sum of the rewards; None when the environment gave none.

    Raises:
        ContextFullError: the model's context is full.
        ModelCallError: the gateway refused a call, for example because the task's limits are reached.
    """
    context = make_context(task, rollout, _find_tools(make))
    environment = make(**_context_for(make, context))
    context.tools = _find_tools(environment)  # an object may offer fewer than its class
    try:
        async with ClientSession(timeout=_NO_LIMIT) as client:
            return await _Episode(environment, task, rollout, context, client).run()
    finally:
        await environment.close()


class _Episode:
    """The loop."""

    def __init__(
        self, environment: Environment, task: Task, rollout: Rollout, context: AttemptContext, client: ClientSession
    ) -> None:
        definitions = [make_definition(tool) for tool in context.tools]
        self._environment: Any = environment  # its methods may take the context too
        self._task = task
        self._rollout = rollout
        self._context: EnvContext = context
        self._tools: Mapping[str, AnyTool] = {tool.name: tool for tool in context.tools}
        self._policy = Policy(client, rollout, definitions)
        self._conversation = Conversation(definitions)
        self._recorder = EpisodeRecorder(rollout, environment)
        self._total: float | None = None

    async def run(self) -> float | None:
        """Return the sum of the rewards. An episode that used up its budget records it before it raises."""
        reset = self._environment.reset
        found: object = await reset(self._task, **_context_for(reset, self._context))
        first = found if isinstance(found, StepResult) else StepResult(observation=found)
        self._conversation.add({"role": "user", "content": self._content(first.observation, first.images)})
        current_progress().mark_prepared()
        try:
            while not await self._take_turn():
                pass
        except ModelCallError as error:
            if self._total is not None and is_out_of_budget(error):
                names = list(self._task.rewards)
                self._rollout.reward(self._total, names[0] if len(names) == 1 else "reward")
            raise
        return self._total

    async def _take_turn(self) -> bool:
        """Ask the model once and apply its answer; return whether the episode is done."""
        answer = await self._ask()
        calls = answer.calls if self._tools else []
        uses = await use_tools(calls, self._tools, self._context)
        began = time.monotonic()
        result = await self._step(answer.text, uses)
        if result.reward is not None:
            score = read_score(result.reward, f"step reward of {type(self._environment).__name__}")
            self._total = (self._total or 0.0) + score
        uses = _fill_in(uses, result, time.monotonic() - began)
        message = {"role": "assistant", **readable_message(answer.message, uses)}
        self._conversation.add_answer(message, answer.num_prompt, answer.num_sampled)
        if uses:
            self._recorder.record_tools(answer.call_id, uses)
            self._conversation.add(*self._tool_messages(uses))
        else:
            self._recorder.record_step(answer.call_id, answer.text, result, time.monotonic() - began)
            self._conversation.add({"role": "user", "content": self._content(result.observation, result.images)})
        if result.done or any(use.result.is_done for use in uses if use.result):
            return True
        max_tokens = self._task.limits.context_tokens
        if answer.is_cut and self._task.history == "full" and max_tokens is not None and not self._named_lengths:
            # the end of the context cut the answer off, not a length that was asked for
            raise _context_full(self._rollout, (answer.num_prompt or 0) + (answer.num_sampled or 0), max_tokens)
        return False

    async def _step(self, text: str, uses: Sequence[ToolUse]) -> StepResult:
        """Apply what the environment carries out itself: a text, or calls of its tool definitions."""
        own = [use.call for use in uses if use.result is None and use.call is not None]
        if uses and not own:
            return StepResult()
        step = self._environment.step
        action = ToolCalls(text=text, calls=own) if own else text
        return await step(action, **_context_for(step, self._context))

    async def _ask(self) -> Answer:
        """Return the model's next answer; where the engine finds its context full, make room once more."""
        await self._make_room(self._room_tokens())
        try:
            return await self._call(self._conversation.prompt)
        except ContextFullError:
            if self._task.history == "full":
                raise
            await self._make_room(self._conversation.num_tokens * (_ANSWER_SHARE - 1) // _ANSWER_SHARE)
            return await self._call(self._conversation.prompt)

    async def _call(self, prompt: Prompt, **options: object) -> Answer:
        call_id = new_id()
        self._recorder.record_state(call_id)
        if (most := self._task.limits.context_tokens) is not None:
            options["max_tokens"] = max(1, most - prompt.num_tokens)
        return await self._policy.ask(prompt.messages, call_id, options)

    def _room_tokens(self) -> int | None:
        """Return the longest prompt that leaves room for an answer; None: not limited by the task."""
        most = self._task.limits.context_tokens
        if most is None:
            return None
        named = self._named_lengths
        if self._task.history == "full":
            return most - (min(named) if named else 1)
        reserve = min(named) if named else most // _ANSWER_SHARE
        return most - reserve - (_SUMMARY_TOKENS if self._task.history == "summarise" else 0)

    async def _make_room(self, max_tokens: int | None) -> None:
        """Shorten the conversation to at most this many tokens.

        Raises: ContextFullError: it cannot be.
        """
        conversation = self._conversation
        if max_tokens is None or conversation.num_tokens <= max_tokens:
            return
        match self._task.history:
            case "drop_observations":
                conversation.drop_observations(max_tokens // _KEPT_SHARE)
            case "summarise" if (prompt := conversation.summary_prompt(_SUMMARY_REQUEST)) is not None:
                none = {"tool_choice": "none"} if self._tools else {}
                answer = await self._call(prompt, **none)
                summary = _SUMMARY.format(text=answer.text or "(empty)")
                num_sampled = None if answer.num_sampled is None else answer.num_sampled + _SUMMARY_FRAME_TOKENS
                conversation.replace_middle(summary, num_sampled)
            case _:
                pass
        if conversation.num_tokens > max_tokens:
            raise _context_full(self._rollout, conversation.num_tokens, max_tokens)

    @property
    def _named_lengths(self) -> list[int]:
        return [value for name in _LENGTHS if isinstance(value := self._task.sampling.get(name), int)]

    def _tool_messages(self, uses: Sequence[ToolUse]) -> list[JsonObject]:
        """Return the answers to tool calls; images follow in a message of the user, as the tool role holds none."""
        messages: list[JsonObject] = []
        shown: list[JsonObject] = []
        for use in uses:
            if use.result is None:
                continue
            text = self._cut(use.result.text)
            messages.append({"role": "tool", "tool_call_id": use.request.id, "content": text})
            if use.result.images:
                shown.append({"type": "text", "text": f"From {use.request.name}:"})
                shown += map(_image_part, use.result.images)
        return [*messages, {"role": "user", "content": shown}] if shown else messages

    def _content(self, observation: object, images: Sequence[str]) -> object:
        """Return an observation as the content of a message."""
        text = self._cut(_as_text(observation))
        return [{"type": "text", "text": text}, *map(_image_part, images)] if images else text

    def _cut(self, text: str) -> str:
        most = self._task.limits.observation_tokens
        return text if most is None else cut_middle(text, most)


_SUMMARY_FRAME_TOKENS: Final = estimate_tokens(_SUMMARY)
_SUMMARY_TOKENS: Final = estimate_tokens(_SUMMARY_REQUEST) + 16


def _find_tools(make: object) -> list[AnyTool]:
    """Return the tools that an environment declares.

    Raises: BadInputError: a name is unknown, or two tools have the same one.
    """
    tools = [
        cast("AnyTool", find_object(tool, "tool")) if isinstance(tool, str) else tool for tool in declared_tools(make)
    ]
    names = [tool.name for tool in tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BadInputError(f"environment: two tools are named {twice[0]!r}; the model could not choose, rename one")
    return tools


def _context_for(function: Callable[..., object], context: EnvContext) -> dict[str, EnvContext]:
    """Return the context as an argument, if the function takes it."""
    return {_CONTEXT: context} if _CONTEXT in inspect.signature(function).parameters else {}


def _fill_in(uses: Sequence[ToolUse], result: StepResult, seconds: float) -> list[ToolUse]:
    """Return the uses, those that the environment carried out with its answers.

    Raises: BadInputError: the environment returned a list, and not one observation for each call.
    """
    own = [use for use in uses if use.result is None]
    if not own:
        return list(uses)
    observation = result.observation
    answers = [observation, *[_SEE_FIRST] * (len(own) - 1)]
    if isinstance(observation, list):
        answers = cast("list[object]", observation)
    if len(answers) != len(own):
        raise BadInputError(
            f"environment: expected one observation for each of {len(own)} tool calls, found {len(answers)}; return a"
            " list of as many, or one value for all"
        )
    found = iter(answers)
    images = iter([result.images, *[list[str]()] * (len(own) - 1)])
    return [
        msgspec.structs.replace(
            use, result=use.result or _as_result(next(found), next(images)), seconds=use.seconds or seconds
        )
        for use in uses
    ]


def _as_result(observation: object, images: list[str]) -> ToolResult:
    return ToolResult(text=_as_text(observation), images=images)


def _as_text(observation: object) -> str:
    return observation if isinstance(observation, str) else msgspec.json.encode(observation).decode()


def _image_part(url: str) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": url}}


def _context_full(rollout: Rollout, num_tokens: int, max_tokens: int) -> ContextFullError:
    return ContextFullError(
        f"attempt {rollout.trajectory_id}: context_length_exceeded, the prompt has about {num_tokens} tokens, and"
        f" {max_tokens} leave room for an answer; raise context_tokens, or choose a history that makes room",
        400,
    )
