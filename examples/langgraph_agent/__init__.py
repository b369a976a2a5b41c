"""An ordinary LangGraph agent, and the lines that trace it."""
