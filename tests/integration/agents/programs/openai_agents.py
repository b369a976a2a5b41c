"""OpenAI's Agents SDK, over both of its interfaces; its own tracing, which would phone home, is off."""

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


set_tracing_disabled(True)
for api in ("responses", "chat_completions"):
    set_default_openai_api(api)
    agent = Agent(name="solver", instructions="Use your tools.", model="gpt-any", tools=[add])
    print(Runner.run_sync(agent, "what is 40 + 2").final_output)
