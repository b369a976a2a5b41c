"""Travel agent, written as usual: nothing in here knows about tracing."""

import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

FARES = {"Lisbon": 120.0, "Oslo": 210.0, "Athens": 95.0}
RATES = {"USD": 1.1, "NOK": 11.5, "JPY": 160.0}

model = ChatOpenAI(
    model=os.environ.get("OPENAI_MODEL", "scripted"),
    base_url=os.environ.get("OPENAI_BASE_URL"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)


@tool
def find_fare(city: str) -> float:
    """Find the price of a flight to a city, in EUR."""
    return FARES[city]


@tool
def convert(amount: float, currency: str) -> float:
    """Convert an amount of EUR to another currency."""
    return round(amount * RATES[currency], 2)


tools = [find_fare, convert]
thinker = model.bind_tools(tools)


def think(state: MessagesState) -> dict[str, object]:
    """Decide what to do next."""
    return {"messages": [thinker.invoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("think", think)
builder.add_node("tools", ToolNode(tools))
builder.add_edge(START, "think")
builder.add_conditional_edges("think", tools_condition)
builder.add_edge("tools", "think")
graph = builder.compile(name="travel")
