"""An agent with two tools in each framework, as its documents show one.

``.ci/try_frameworks.py`` runs those of a framework in an environment of its own, behind the gateway. Addresses and keys
come in the variables that a rollout's command gets; nothing else here knows that there is a gateway. Each line that it
reads is a rollout: ``{"agent", "is_streamed", "variables"}``, each that it writes what came of it: ``{"result"}`` or
``{"fault"}``.
"""
# ruff: noqa: PLC0415  # each environment has one framework

import asyncio
import functools
import json
import os
import sys
from typing import Any

from pydantic import BaseModel

QUESTION = "What is 6 times 7, plus 1?"
INSTRUCTIONS = "Use your tools."


class Answer(BaseModel):
    """The answer."""

    answer: int


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a * b


TOOLS = [add, multiply]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


def use(name: str, arguments: dict[str, int]) -> str:
    return str({"add": add, "multiply": multiply}[name](**arguments))


def openai_chat(*, is_streamed: bool) -> object:
    import openai

    client = openai.OpenAI()
    tools = [
        {"type": "function", "function": {"name": one.__name__, "description": one.__doc__, "parameters": SCHEMA}}
        for one in TOOLS
    ]
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": QUESTION}]
    while True:
        request: dict[str, Any] = {"model": "policy", "messages": messages, "tools": tools}
        if is_streamed:
            with client.chat.completions.stream(**request) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**request).choices[0].message
        messages.append(message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            found = use(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


def openai_responses(*, is_streamed: bool) -> object:
    import openai

    client = openai.OpenAI()
    tools = [
        {"type": "function", "name": one.__name__, "description": one.__doc__, "parameters": SCHEMA} for one in TOOLS
    ]
    given: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        request: dict[str, Any] = {"model": "policy", "input": given, "tools": tools, "instructions": INSTRUCTIONS}
        if is_streamed:
            with client.responses.stream(**request) as stream:
                answer = stream.get_final_response()
        else:
            answer = client.responses.create(**request)
        given += answer.output
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        for call in calls:
            found = use(call.name, json.loads(call.arguments))
            given.append({"type": "function_call_output", "call_id": call.call_id, "output": found})


def anthropic_runner(*, is_streamed: bool) -> object:
    import anthropic

    def in_text(function: Any) -> Any:
        @functools.wraps(function)
        def tool(**arguments: int) -> str:
            return use(function.__name__, arguments)

        return tool

    tools = [anthropic.beta_tool(in_text(one)) for one in TOOLS]
    runner = anthropic.Anthropic().beta.messages.tool_runner(
        model="policy", max_tokens=1000, tools=tools, system=INSTRUCTIONS, stream=is_streamed,
        messages=[{"role": "user", "content": QUESTION}],
    )  # fmt: skip
    if is_streamed:
        *_, last = (stream.get_final_message() for stream in runner)
        return last.content[-1].text
    return runner.until_done().content[-1].text


def litellm_loop(*, is_streamed: bool) -> object:
    import litellm

    tools = [
        {"type": "function", "function": {"name": one.__name__, "description": one.__doc__, "parameters": SCHEMA}}
        for one in TOOLS
    ]
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": QUESTION}]
    while True:
        answer = litellm.completion(model="openai/policy", messages=messages, tools=tools, stream=is_streamed)
        if is_streamed:
            answer = litellm.stream_chunk_builder(list(answer))
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            found = use(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


def _openai_agents(api: str, *, is_streamed: bool, output_type: type[BaseModel] | None = None) -> object:
    import agents
    import openai

    agents.set_tracing_disabled(disabled=True)
    agents.set_default_openai_client(openai.AsyncOpenAI(), use_for_tracing=False)
    agents.set_default_openai_api(api)
    tools = [agents.function_tool(one) for one in TOOLS]
    agent = agents.Agent(name="solver", instructions=INSTRUCTIONS, model="policy", tools=tools, output_type=output_type)
    if not is_streamed:
        return agents.Runner.run_sync(agent, QUESTION).final_output

    async def run() -> object:
        running = agents.Runner.run_streamed(agent, QUESTION)
        async for _ in running.stream_events():
            pass
        return running.final_output

    return asyncio.run(run())


def openai_agents_responses(*, is_streamed: bool) -> object:
    return _openai_agents("responses", is_streamed=is_streamed)


def openai_agents_chat(*, is_streamed: bool) -> object:
    return _openai_agents("chat_completions", is_streamed=is_streamed)


def openai_agents_output_type(*, is_streamed: bool) -> object:
    return _openai_agents("responses", is_streamed=is_streamed, output_type=Answer)


def _pydantic_ai(output_type: object, *, is_streamed: bool) -> object:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel

    agent: Any = Agent(OpenAIChatModel("policy"), system_prompt=INSTRUCTIONS, tools=TOOLS, output_type=output_type)
    if not is_streamed:
        return agent.run_sync(QUESTION).output

    async def run() -> object:
        async with agent.run_stream(QUESTION) as running:
            return await running.get_output()

    return asyncio.run(run())


def pydantic_ai_text(*, is_streamed: bool) -> object:
    return _pydantic_ai(str, is_streamed=is_streamed)


def pydantic_ai_output_type(*, is_streamed: bool) -> object:
    return _pydantic_ai(Answer, is_streamed=is_streamed)


def pydantic_ai_native_output(*, is_streamed: bool) -> object:
    from pydantic_ai import NativeOutput

    return _pydantic_ai(NativeOutput(Answer), is_streamed=is_streamed)


def _smolagents(kind: str, *, is_streamed: bool) -> object:
    import smolagents

    model = smolagents.OpenAIModel(
        "policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"]
    )
    tools = [smolagents.tool(one) for one in TOOLS]
    agent = getattr(smolagents, kind)(
        tools=tools, model=model, max_steps=6, verbosity_level=0, stream_outputs=is_streamed
    )
    return agent.run(QUESTION)


def smolagents_tools(*, is_streamed: bool) -> object:
    return _smolagents("ToolCallingAgent", is_streamed=is_streamed)


def smolagents_code(*, is_streamed: bool) -> object:
    return _smolagents("CodeAgent", is_streamed=is_streamed)


def _langchain(response_format: object, *, is_streamed: bool) -> object:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="policy", streaming=is_streamed)
    agent: Any = create_agent(model, TOOLS, system_prompt=INSTRUCTIONS, response_format=response_format)
    end = agent.invoke({"messages": [("user", QUESTION)]})
    return end.get("structured_response") or end["messages"][-1].content


def langchain_create_agent(*, is_streamed: bool) -> object:
    return _langchain(None, is_streamed=is_streamed)


def langchain_tool_strategy(*, is_streamed: bool) -> object:
    from langchain.agents.structured_output import ToolStrategy

    return _langchain(ToolStrategy(Answer), is_streamed=is_streamed)


def langchain_provider_strategy(*, is_streamed: bool) -> object:
    from langchain.agents.structured_output import ProviderStrategy

    return _langchain(ProviderStrategy(Answer), is_streamed=is_streamed)


def _dspy(signature: str) -> object:
    import dspy

    dspy.configure(lm=dspy.LM("openai/policy", cache=False, temperature=1.0))
    return dspy.ReAct(signature, tools=TOOLS, max_iters=4)(question=QUESTION).answer


def dspy_react(*, is_streamed: bool) -> object:
    del is_streamed
    return _dspy("question -> answer: int")


def llama_index_function_agent(*, is_streamed: bool) -> object:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike

    llm = OpenAILike(
        model="policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"],
        is_chat_model=True, is_function_calling_model=True,
    )  # fmt: skip
    agent = FunctionAgent(tools=TOOLS, llm=llm, system_prompt=INSTRUCTIONS, streaming=is_streamed)

    async def run() -> object:
        return str(await agent.run(QUESTION))

    return asyncio.run(run())


def crewai_crew(*, is_streamed: bool) -> object:
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    llm = LLM(
        model="openai/policy", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"],
        stream=is_streamed,
    )  # fmt: skip
    tools = [tool(one.__name__)(one) for one in TOOLS]
    solver = Agent(role="solver", goal="solve", backstory=INSTRUCTIONS, llm=llm, tools=tools)
    task = Task(description=QUESTION, expected_output="a number", agent=solver)
    return Crew(agents=[solver], tasks=[task]).kickoff().raw


def autogen_assistant(*, is_streamed: bool) -> object:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    about = {
        "vision": False,
        "function_calling": True,
        "json_output": True,
        "family": "unknown",
        "structured_output": True,
    }
    client = OpenAIChatCompletionClient(model="policy", model_info=about)
    agent = AssistantAgent(
        "solver",
        client,
        tools=TOOLS,
        system_message=INSTRUCTIONS,
        max_tool_iterations=6,
        model_client_stream=is_streamed,
    )

    async def run() -> object:
        return (await agent.run(task=QUESTION)).messages[-1].content

    return asyncio.run(run())


def _agno(output_schema: type[BaseModel] | None, *, is_streamed: bool) -> object:
    from agno.agent import Agent
    from agno.models.openai.like import OpenAILike

    model = OpenAILike(id="policy", base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
    agent = Agent(model=model, tools=TOOLS, instructions=INSTRUCTIONS, output_schema=output_schema, telemetry=False)
    if not is_streamed:
        return agent.run(QUESTION).content
    return "".join(str(one.content or "") for one in agent.run(QUESTION, stream=True) if hasattr(one, "content"))


def agno_agent(*, is_streamed: bool) -> object:
    return _agno(None, is_streamed=is_streamed)


def agno_output_schema(*, is_streamed: bool) -> object:
    return _agno(Answer, is_streamed=is_streamed)


def haystack_agent(*, is_streamed: bool) -> object:
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function

    tools = [create_tool_from_function(one) for one in TOOLS]
    agent = Agent(
        chat_generator=OpenAIChatGenerator(model="policy", api_base_url=os.environ["OPENAI_BASE_URL"]),
        tools=tools, system_prompt=INSTRUCTIONS, streaming_callback=(lambda _: None) if is_streamed else None,
    )  # fmt: skip
    agent.warm_up()
    return agent.run(messages=[ChatMessage.from_user(QUESTION)])["last_message"].text


def strands_agent(*, is_streamed: bool) -> object:
    """Always streamed."""
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    del is_streamed
    address = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
    model = OpenAIModel(client_args=address, model_id="policy")
    return str(
        Agent(model=model, tools=[tool(one) for one in TOOLS], system_prompt=INSTRUCTIONS, callback_handler=None)(
            QUESTION
        )
    )


def google_genai_functions(*, is_streamed: bool) -> object:
    from google import genai
    from google.genai import types

    client = genai.Client()
    config = types.GenerateContentConfig(tools=TOOLS, system_instruction=INSTRUCTIONS)
    request: dict[str, Any] = {"model": "policy", "contents": QUESTION, "config": config}
    if not is_streamed:
        return client.models.generate_content(**request).text
    return "".join(one.text or "" for one in client.models.generate_content_stream(**request))


def _adk(model: object, *, is_streamed: bool) -> object:
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    agent = LlmAgent(name="solver", model=model, instruction=INSTRUCTIONS, tools=TOOLS)
    runner = InMemoryRunner(agent=agent, app_name="app")

    async def run() -> object:
        session = await runner.session_service.create_session(app_name="app", user_id="u")
        last = ""
        async for event in runner.run_async(
            user_id="u", session_id=session.id,
            new_message=types.Content(role="user", parts=[types.Part(text=QUESTION)]),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE if is_streamed else StreamingMode.NONE),
        ):  # fmt: skip
            if event.is_final_response() and event.content and event.content.parts:
                last = "".join(part.text or "" for part in event.content.parts)
        return last

    return asyncio.run(run())


def google_adk_gemini(*, is_streamed: bool) -> object:
    return _adk("gemini-policy", is_streamed=is_streamed)


def google_adk_litellm(*, is_streamed: bool) -> object:
    from google.adk.models.lite_llm import LiteLlm

    return _adk(LiteLlm(model="openai/policy"), is_streamed=is_streamed)


def semantic_kernel_agent(*, is_streamed: bool) -> object:
    import openai
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Calculator:
        """Calculates."""

        @kernel_function
        def add(self, a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @kernel_function
        def multiply(self, a: int, b: int) -> int:
            """Multiply two numbers."""
            return a * b

    async def run() -> object:
        service = OpenAIChatCompletion(ai_model_id="policy", async_client=openai.AsyncOpenAI())
        agent = ChatCompletionAgent(service=service, name="solver", instructions=INSTRUCTIONS, plugins=[Calculator()])
        if not is_streamed:
            return str((await agent.get_response(messages=QUESTION)).content)
        return "".join([str(one.content) async for one in agent.invoke_stream(messages=QUESTION)])

    return asyncio.run(run())


def agent_framework_agent(*, is_streamed: bool) -> object:
    from agent_framework import Agent
    from agent_framework.openai import OpenAIChatCompletionClient

    agent = Agent(OpenAIChatCompletionClient(model="policy"), INSTRUCTIONS, name="solver", tools=TOOLS)

    async def run() -> object:
        if not is_streamed:
            return str(await agent.run(QUESTION))
        return "".join([str(one) async for one in agent.run(QUESTION, stream=True)])

    return asyncio.run(run())


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what frameworks print is no answer
    for line in sys.stdin:
        rollout = json.loads(line)
        os.environ.update(rollout["variables"])
        try:
            answer = {"result": str(globals()[rollout["agent"]](is_streamed=rollout["is_streamed"])).strip()[:200]}
        except Exception as error:  # noqa: BLE001  # whatever a framework raises
            text = " ".join(str(error).split())
            answer = {"fault": f"{type(error).__name__}: {text}"[:300]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
