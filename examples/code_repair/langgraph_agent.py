"""LangGraph agent that repairs code with the shell and file tools of its attempt's sandbox."""

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from agent_layer.schema import TaskView
from envs import EnvContext, make_context
from envs.tools import FunctionTool, edit_file, list_files, read_file, shell
from tracer import Rollout


def bind(tool: FunctionTool, context: EnvContext) -> StructuredTool:
    """Make a tool of LangChain that acts in the attempt's sandbox."""

    async def run(**arguments: object) -> str:
        return await tool.read(context, **arguments)

    return StructuredTool(name=tool.name, description=tool.description, args_schema=tool.parameters, coroutine=run)


async def agent(task: TaskView, rollout: Rollout) -> str:
    """Repair the code, and return what the model says in the end."""
    context = make_context(task, rollout)
    tools = [bind(tool, context) for tool in (shell, list_files, read_file, edit_file)]
    model = ChatOpenAI(model="policy", base_url=rollout.base_url, api_key=rollout.api_key).bind_tools(tools)

    async def think(state: MessagesState) -> dict[str, object]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("think", think)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", tools_condition)
    builder.add_edge("tools", "think")
    state = await builder.compile().ainvoke({"messages": [("user", task.input["prompt"])]})
    return state["messages"][-1].content
