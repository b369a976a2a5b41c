"""Frameworks that are tried: their pinned packages and agents, and the records of what came out."""

from pathlib import Path

import msgspec

TRIED = Path(__file__).resolve().parents[1] / "tests" / "frameworks" / "tried.json"


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """One environment of pinned packages, and its agents."""

    name: str
    title: str
    """Its name in documents."""
    requires: tuple[str, ...]
    agents: tuple[str, ...]
    """Functions of ``tests/frameworks/programs.py``."""
    forced: tuple[str, ...] = ()
    """Those of the agents that force a form, or ask for one."""
    is_streamed: bool = True
    """Whether its agents stream where they are asked to."""
    how: str = ""
    """How it finds the gateway, for the documents."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout of an agent, and what became of its tokens."""

    num_calls: int
    num_steps: int
    sampled: int
    trained: int
    lost: dict[str, int]
    """Tokens by cause."""
    forks: dict[str, int]
    """Steps that do not continue their prefix, by cause."""
    findings: list[str]
    num_rows: int
    result: str
    fault: str | None
    """Why the program failed; None: it ended by itself."""
    ending: str
    """Status and cause."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One agent in one mode: two rollouts of a group."""

    agent: str
    framework: str
    mode: str
    """``whole`` or ``streamed``."""
    tried_on: str
    versions: dict[str, str]
    rollouts: list[Rollout]
    """Of a policy that answers at once, and of one that thinks."""
    missed: Rollout | None = None
    """Of a policy that misses the form; None: the agent asks for none."""

    @property
    def is_good(self) -> bool:
        """Whether each call is a step, each token is trained, and what failed is the policy's."""
        every = [*self.rollouts, *([self.missed] if self.missed else [])]
        is_exact = all(one.num_calls == one.num_steps > 0 and not one.lost for one in every)
        is_policys = self.missed is None or self.missed.fault is None or self.missed.ending == "truncated, policy"
        return is_exact and is_policys and not any(one.fault for one in self.rollouts)

    def line(self) -> str:
        """Return it as a line for people."""
        verdict = "ok " if self.is_good else "BAD"
        shown = [
            f"calls {one.num_calls} = {one.num_steps}, tokens {one.sampled} = {one.trained} + {one.lost or 0},"
            f" rows {one.num_rows} {one.forks or ''} {one.findings or ''} {one.fault or one.result}"
            for one in self.rollouts
        ]
        missed = f" | missed: {self.missed.ending}: {self.missed.fault or self.missed.result}" if self.missed else ""
        return f"{verdict} {self.agent} {self.mode}: {' | '.join(shown)}{missed}"


def read_tried() -> list[Tried]:
    """Return what came out before."""
    return msgspec.json.decode(TRIED.read_bytes(), type=list[Tried]) if TRIED.exists() else []


FRAMEWORKS = [
    Framework(
        name="openai",
        title="openai",
        requires=("openai==2.54.0",),
        agents=("openai_chat", "openai_responses"),
        how="`OPENAI_BASE_URL`, `OPENAI_API_KEY`",
    ),
    Framework(
        name="anthropic",
        title="anthropic",
        requires=("anthropic==2.11.0",),
        agents=("anthropic_runner",),
        how="`ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY`",
    ),
    Framework(
        name="google-genai",
        title="google-genai",
        requires=("google-genai==3.6.1",),
        agents=("google_genai_functions",),
        how="`GOOGLE_GEMINI_BASE_URL`, `GEMINI_API_KEY`",
    ),
    Framework(
        name="litellm",
        title="LiteLLM",
        requires=("litellm==1.106.2", "mcp==2.3.0"),
        agents=("litellm_loop",),
        how='`litellm.completion(model="openai/policy")`; `OPENAI_API_BASE`',
    ),
    Framework(
        name="langchain",
        title="LangChain, LangGraph",
        requires=("langchain==1.5.2", "langchain-openai==1.7.3", "langgraph==1.2.22"),
        agents=("langchain_create_agent", "langchain_tool_strategy", "langchain_provider_strategy"),
        forced=("langchain_tool_strategy", "langchain_provider_strategy"),
        how='`ChatOpenAI(model="policy")`',
    ),
    Framework(
        name="openai-agents",
        title="openai-agents",
        requires=("openai-agents==0.24.0",),
        agents=("openai_agents_responses", "openai_agents_chat", "openai_agents_output_type"),
        forced=("openai_agents_output_type",),
        how='`Agent(model="policy")`; `set_tracing_disabled(True)`',
    ),
    Framework(
        name="pydantic-ai",
        title="pydantic-ai",
        requires=("pydantic-ai-slim[openai]==2.68.0",),
        agents=("pydantic_ai_text", "pydantic_ai_output_type", "pydantic_ai_native_output"),
        forced=("pydantic_ai_output_type", "pydantic_ai_native_output"),
        how='`Agent(OpenAIChatModel("policy"))`',
    ),
    Framework(
        name="smolagents",
        title="smolagents",
        requires=("smolagents[openai]==1.26.0",),
        agents=("smolagents_tools", "smolagents_code"),
        forced=("smolagents_tools",),
        how='`OpenAIModel("policy", api_base=…, api_key=…)`',
    ),
    Framework(
        name="dspy",
        title="DSPy",
        requires=("dspy==3.4.1",),
        agents=("dspy_react",),
        forced=("dspy_react",),
        is_streamed=False,
        how='`dspy.LM("openai/policy", cache=False, temperature=1.0)`',
    ),
    Framework(
        name="llama-index",
        title="LlamaIndex",
        requires=("llama-index-core==0.14.25", "llama-index-llms-openai-like==0.8.1"),
        agents=("llama_index_function_agent",),
        how='`OpenAILike(model="policy", is_chat_model=True, …)`',
    ),
    Framework(
        name="crewai",
        title="CrewAI",
        requires=("crewai==1.15.30",),
        agents=("crewai_crew",),
        how='`LLM(model="openai/policy", base_url=…, api_key=…)`',
    ),
    Framework(
        name="autogen",
        title="AutoGen",
        requires=("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"),
        agents=("autogen_assistant",),
        how='`OpenAIChatCompletionClient(model="policy", model_info=…)`',
    ),
    Framework(
        name="agent-framework",
        title="Microsoft Agent Framework",
        requires=("agent-framework-core==1.23.0", "agent-framework-openai==1.17.0"),
        agents=("agent_framework_agent",),
        how='`OpenAIChatCompletionClient(model="policy")`',
    ),
    Framework(
        name="agno",
        title="Agno",
        requires=("agno==3.1.10", "openai"),
        agents=("agno_agent", "agno_output_schema"),
        forced=("agno_output_schema",),
        how='`OpenAILike(id="policy", base_url=…, api_key=…)`',
    ),
    Framework(
        name="haystack",
        title="Haystack",
        requires=("haystack-ai==3.4.1",),
        agents=("haystack_agent",),
        how='`OpenAIChatGenerator(model="policy", api_base_url=…)`',
    ),
    Framework(
        name="strands",
        title="Strands",
        requires=("strands-agents[openai]==1.62.0",),
        agents=("strands_agent",),
        is_streamed=False,
        how='`OpenAIModel(client_args={"base_url": …, "api_key": …}, model_id="policy")`; always streams',
    ),
    Framework(
        name="google-adk",
        title="google-adk",
        requires=("google-adk==2.13.0", "litellm"),
        agents=("google_adk_gemini", "google_adk_litellm"),
        how='`LlmAgent(model="gemini-policy")`; `GOOGLE_GEMINI_BASE_URL`',
    ),
    Framework(
        name="semantic-kernel",
        title="Semantic Kernel",
        requires=("semantic-kernel==1.45.0",),
        agents=("semantic_kernel_agent",),
        how='`OpenAIChatCompletion(ai_model_id="policy")`',
    ),
]
