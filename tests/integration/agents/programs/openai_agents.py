"""OpenAI's Agents SDK; its own tracing, which would phone home, is off. With 'chat': over chat completions."""

import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


set_tracing_disabled(True)
if "chat" in sys.argv:
    set_default_openai_api("chat_completions")
agent = Agent(name="solver", instructions="Use your tools.", model="gpt-any", tools=[add])
print(Runner.run_sync(agent, "what is 40 + 2").final_output)
