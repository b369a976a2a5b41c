"""Adapter of the conformance kit for Agent Lightning 1.0: a rollout for each check, its events as records.

``--records conformance_lightning:open_server``, with KIT_ENGINE_URL: the kit's engine, up to /v1. Each request goes to
the proxy's mode ``train``.
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from urllib.error import HTTPError

from agent_layer.conformance import Door, RecordedAnswer

__all__ = ["open_server"]


class LightningAdapter:
    """A server that ``python -m agentlightning.server`` runs."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url.rstrip("/"), key
        self._rollouts: list[str] = []
        self._ask("/api/models", [{"model": "policy", "endpoint": os.environ["KIT_ENGINE_URL"]}])

    def open_door(self, check: str) -> Door:
        """See CaptureAdapter."""
        (rollout,) = self._ask("/api/rollouts", [{"input": check}])
        self._rollouts.append(rollout["rollout_id"])
        path = f"/proxy/rollout/{rollout['rollout_id']}/attempt/0/mode/train/openai/v1"
        return Door(self._url + path, self._key)

    def read_records(self) -> Iterator[RecordedAnswer]:
        """See CaptureAdapter."""
        for rollout in self._rollouts:
            try:
                events = self._ask(f"/api/rollouts/{rollout}/events?event_type=model_request")
            except HTTPError as error:  # as after half a surrogate pair: there is nothing to read
                print(f"{rollout}: {error}", file=sys.stderr)
                continue
            for event in events:
                yield from _read(event["data"])

    def _ask(self, path: str, body: object = None):
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self._url + path, content, headers), timeout=60) as reply:
            return json.load(reply)


def _read(call) -> Iterator[RecordedAnswer]:
    answer = call["response"]
    for choice in answer.get("choices") or ({},):
        logprobs = (choice.get("logprobs") or {}).get("content")
        yield RecordedAnswer(
            messages=call["request"]["messages"],
            message=choice.get("message"),
            prompt_token_ids=answer.get("prompt_token_ids"),
            response_token_ids=choice.get("token_ids"),
            logprobs=None if logprobs is None else [one["logprob"] for one in logprobs],
            finish_reason=choice.get("finish_reason"),
            status=call["status"],
        )


def open_server(url: str, key: str) -> LightningAdapter:
    """Return the adapter."""
    return LightningAdapter(url, key)
