"""The environment of code repair: plain text at level 0, tools in a sandbox above it."""

from collections.abc import Sequence
from typing import Final

from agent_layer.errors import SandboxError
from agent_layer.schema import Task
from envs.env_context import EnvContext, ToolCalls
from envs.environment import DeclaredTool, StepResult
from envs.tasksets.repair.tasks import RepairInput, read_input
from envs.tools import edit_file, list_files, read_file, tool, write_file

RUN_TESTS: Final = ("python3", "-m", "unittest", "-q")
_SECONDS: Final = 20.0
_MAX_OUTPUT_LENGTH: Final = 4000
"""Characters, the last ones."""


@tool
async def run_tests(context: EnvContext) -> str:
    """Run the tests of the repository, and return what they print."""
    ran = await context.sandbox.exec(RUN_TESTS, seconds=_SECONDS)
    if ran.status == "gone":
        raise SandboxError("sandbox: the box was lost while tests ran in it; the attempt is made again")
    output = (ran.stdout + ran.stderr).decode("utf-8", "replace")[-_MAX_OUTPUT_LENGTH:]
    ending = f"exit status {ran.exit_code}" if ran.status == "exited" else ran.status
    return f"{output}\n[{ending}]"


class RepairEnvironment:
    """Begins with the task, and ends at a plain text. Contract: ``Environment``.

    The scorer rewards, so no step does.
    """

    version = "1"
    tools: Sequence[DeclaredTool] = (list_files, read_file, edit_file, write_file, run_tests)

    def __init__(self, context: EnvContext) -> None:
        self._input: RepairInput = read_input(context.task)
        if self._input.level == 0:
            self.tools = ()

    async def reset(self, task: Task) -> object:  # noqa: ARG002  # the context knows the task
        """Return the prompt."""
        return self._input.prompt

    async def step(self, action: str | ToolCalls) -> StepResult:
        """End the attempt at a text; tools run by themselves."""
        return StepResult(done=isinstance(action, str))

    def state(self) -> object:
        """Return the level."""
        return {"level": self._input.level}

    async def close(self) -> None:
        """Release nothing: the worker closes the box."""
