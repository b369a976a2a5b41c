"""This file holds a model that is not the policy: who answers for it, and what its requests carry."""

from collections.abc import Mapping

import msgspec

from agent_layer.gateway.dialects.chat import ChatRequest
from agent_layer.schema.step import StepPart
from agent_layer.store.engines import Engine

__all__ = ["Provider"]


class Provider(Engine, frozen=True, kw_only=True):
    """A model that somebody else serves. What it answers is never trained on: its weights are not the run's."""

    api_key: str | None

    def mark(self, start: StepPart, request: ChatRequest) -> StepPart:
        """Say in a call's beginning that the policy was not asked, nor anything overridden."""
        asked = request.sampling.get("temperature")
        return msgspec.structs.replace(
            start,
            role="aux",
            engine="litellm",
            logprobs_mode=None,
            sampling_applied=request.sampling,
            temperature=float(asked) if isinstance(asked, int | float) else None,
        )

    @property
    def headers(self) -> Mapping[str, str]:
        """What a request to it must carry."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
