"""What an episode records: the state of the world before each call, what followed it, and the policy's mistakes."""

import time

import msgspec

from agent_layer.schema import Observation, StepPart, StepState, content_hash, json_text, json_value, new_id, refer_to
from envs.environment import Environment, StepResult
from envs.episode.tool_calls import ToolUse
from tracer.core import ContentWriter, Rollout

TOOL_ERROR = "tool_error"
"""Finding of a step whose tool calls were wrong; the kind of mistake follows."""


class EpisodeRecorder:
    """Records one episode."""

    def __init__(self, rollout: Rollout, environment: Environment) -> None:
        self._rollout = rollout
        self._environment = environment

    def record_state(self, call_id: str) -> None:
        """Record the state of the world before a model call."""
        contents = ContentWriter(self._rollout)
        state = StepState(environment=contents.add(self._environment.state()))
        contents.write(self._part(call_id, state=state, is_end=False))

    def record_step(self, call_id: str, action: str, result: StepResult, seconds: float) -> None:
        """Record what the environment answered to a text."""
        output = _with_images(json_value(result.observation), result.images)
        self._rollout.append(self._observation(call_id, type(self._environment).__name__, action, output, seconds))

    def record_tools(self, call_id: str, uses: list[ToolUse]) -> None:
        """Record what tools answered, and the model's mistakes in calling them."""
        for use in uses:
            if use.result is None:
                continue
            arguments = use.call.arguments if use.call else use.request.arguments
            output = _with_images(json_value(use.result.text), use.result.images)
            observed = self._observation(call_id, use.request.name, json_value(arguments), output, use.seconds)
            status = "error" if use.result.is_error else "ok"
            self._rollout.append(msgspec.structs.replace(observed, status=status))
        if findings := sorted({f"{TOOL_ERROR}:{use.mistake}" for use in uses if use.mistake}):
            self._rollout.append(self._part(call_id, findings=findings, is_end=True))

    def _part(
        self, call_id: str, *, is_end: bool, state: StepState | None = None, findings: list[str] | None = None
    ) -> StepPart:
        return StepPart(
            trajectory_id=self._rollout.trajectory_id,
            call_id=call_id,
            run=self._rollout.run,
            source="handler",
            phase="end" if is_end else "start",
            at=time.time(),
            state=state,
            findings=findings or [],
        )

    def _observation(self, call_id: str, name: str, arguments: object, output: object, seconds: float) -> Observation:
        return Observation(
            trajectory_id=self._rollout.trajectory_id,
            observation_id=new_id(),
            run=self._rollout.run,
            name=name,
            at=time.time(),
            call_id=call_id,
            arguments=arguments,
            output=output,
            status="ok",
            duration_seconds=seconds,
        )


def _with_images(output: object, images: list[str]) -> object:
    """Return an output that refers to its images: the gateway stores them, with the prompt that shows them."""
    if not images:
        return output
    return {"observation": output, "images": [refer_to(content_hash(json_text(image))) for image in images]}
