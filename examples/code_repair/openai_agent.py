"""Agent of the OpenAI Agents SDK that repairs code with the tools of its attempt's sandbox."""

import json
from dataclasses import dataclass

from agents import Agent, FunctionTool, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

from agent_layer.schema import TaskView
from envs import EnvContext, make_context, tools
from tracer import Rollout

set_tracing_disabled(True)  # the SDK's own tracing sends prompts to a third party


@dataclass
class Bound:
    """A tool of the attempt's sandbox, as the SDK calls it."""

    tool: tools.FunctionTool
    context: EnvContext

    async def __call__(self, _: object, arguments: str) -> str:
        """Return the tool's answer to JSON arguments."""
        return await self.tool.read(self.context, **json.loads(arguments))


async def agent(task: TaskView, rollout: Rollout) -> str:
    """Repair the code, and return what the model says in the end."""
    context = make_context(task, rollout)
    bound = [
        FunctionTool(tool.name, tool.description, tool.parameters, Bound(tool, context), strict_json_schema=False)
        for tool in (tools.shell, tools.list_files, tools.read_file, tools.edit_file)
    ]
    client = AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.api_key)
    model = OpenAIChatCompletionsModel(rollout.model or "policy", client)
    repairer = Agent(name="repairer", model=model, tools=bound)
    return (await Runner.run(repairer, task.input["prompt"], max_turns=30)).final_output
