"""LangChain's agents with two tools and a response format, as its documents show them; workers import this file."""

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

MAX_MODEL_LEN = 8192


class Product(BaseModel):
    """The product."""

    product: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def make(form, *, is_streamed):
    """Forced to call a tool, or guided by a schema; asking for more tokens than the model has."""
    model = ChatOpenAI(
        model="policy", base_url="http://of.the.rollout", api_key="too", temperature=1, max_tokens=4 * MAX_MODEL_LEN,
        streaming=is_streamed, max_retries=0,
    )  # fmt: skip
    return create_agent(model, [add, multiply], system_prompt="Use tools.", response_format=form(Product))


tool_whole, tool_streamed = (make(ToolStrategy, is_streamed=is_streamed) for is_streamed in (False, True))
format_whole, format_streamed = (make(ProviderStrategy, is_streamed=is_streamed) for is_streamed in (False, True))
GRAPHS = {
    "tool_whole": tool_whole,
    "tool_streamed": tool_streamed,
    "format_whole": format_whole,
    "format_streamed": format_streamed,
}


async def score(task, trajectory, result):  # noqa: ARG001  # what a worker calls it with
    """Reward short answers: no model of the tests multiplies."""
    return 1.0 / (1 + sum(len(step.action.response_token_ids or ()) for step in trajectory.steps))
