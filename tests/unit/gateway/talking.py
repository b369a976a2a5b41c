"""A rollout in front of a model whose template writes down everything, for agents of each dialect.

Each letter is a token. What an agent's next request is rendered to either goes on from the tokens of an answer, or not.
"""

import json
from itertools import count

from agent_layer.gateway.calls.end_parts import remember
from agent_layer.gateway.dialects.base import Exchange
from agent_layer.gateway.dialects.chat_answer import ChatAnswer, build_action
from agent_layer.gateway.dialects.completions import Completions
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.gateway.rollouts.rollout import new_rollout
from agent_layer.schema import OpenRequest, TokenIds

DIALECTS = {"chat": Completions(), "responses": Responses(), "linked": Responses(), "messages": Messages()}


def render(message):
    """Everything that a template may write of a message."""
    calls = [
        (one.get("id"), one["function"]["name"], one["function"]["arguments"])
        for one in message.get("tool_calls") or ()
    ]
    shown = [message.get("reasoning"), message.get("content") or "", calls, message.get("tool_call_id")]
    return f"<{message['role']}>{json.dumps(shown)}\n"


def make_ids(text):
    return TokenIds(list(text.encode()))


class Talk:
    """One rollout, asked in any dialect."""

    def __init__(self, *, with_reasoning=False):
        self.rollout = new_rollout(OpenRequest(task_id="t"), "r")
        self.with_reasoning = with_reasoning
        self._numbers = count()

    @property
    def memory(self):
        return self.rollout.history.answers.memory

    def read(self, dialect, body):
        """Return a request as its dialect reads it."""
        return DIALECTS[dialect].read(json.dumps(body).encode(), self.memory)

    def ask(self, dialect, body, message):
        """Return (what the engine reads, what the client gets, findings) where the model answers with this message."""
        spoken = DIALECTS[dialect]
        prompt = self.rollout.inspect_prompt(self.read(dialect, body), with_reasoning=self.with_reasoning)
        read = [json.loads(bytes(one)) for one in prompt.request.messages]
        ids = f"{body.get('tools')}" + "".join(map(render, read))
        sampled = render({"role": "assistant", **message})
        if prompt.request.is_prefilled:  # this template writes the text last
            whole = render({**message, "role": "assistant", "content": read[-1]["content"] + message["content"]})
            shown = "".join(map(render, read[:-1])) + whole
            ids, sampled = f"{body.get('tools')}" + shown[: -len(sampled)], shown[-len(sampled) :]
        ids, sampled = make_ids(ids), make_ids(sampled)
        answer = ChatAnswer(
            body=json.dumps({"choices": [{"message": message}]}).encode(),
            prompt_token_ids=ids,
            actions=[build_action(message, sampled, None, "stop", 0)],
        )
        call_id = f"call-{next(self._numbers)}"
        context = remember(self.rollout.history, call_id, prompt, answer, prompt.hash_answers, is_whole=True)
        exchange = Exchange(request=prompt.request, memory=self.memory, call_id=call_id, model="m", at=1)
        return read, json.loads(spoken.write(answer, exchange)), [*context.findings, *prompt.request.restored]
