"""LangGraph's prebuilt ReAct agent."""

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


agent = create_react_agent(ChatOpenAI(model="gpt-any"), [add])
state = agent.invoke({"messages": [("user", "what is 40 + 2")]})
print(state["messages"][-1].content)
