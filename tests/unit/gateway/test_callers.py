"""Who calls: names of sub-agents and side calls of agents that people use, and patterns that are declared."""

import itertools
import json

import pytest

from agent_layer.errors import BadInputError
from agent_layer.gateway.dialects.completions import Completions
from agent_layer.gateway.dialects.messages import Messages
from agent_layer.gateway.dialects.responses import Responses
from agent_layer.gateway.engines.models import ModelNames
from agent_layer.gateway.rollouts.callers import SideCalls, judge_caller, read_agent, read_side_calls
from agent_layer.schema import SideCall

MAIN = {
    "claude code": {"x-claude-code-session-id": "s", "x-claude-code-request-class": "main"},
    "codex": {"session-id": "root", "thread-id": "root", "originator": "codex_exec", "x-codex-window-id": "root:0"},
    "older codex": {"session_id": "root", "conversation_id": "root", "originator": "codex_cli_rs"},
    "opencode": {"x-session-id": "ses_a", "x-session-affinity": "ses_a"},
    "copilot": {"x-initiator": "agent", "x-interaction-id": "i", "x-agent-task-id": "t"},
    "any": {},
}
SUB = {
    "claude code": [
        {
            "x-claude-code-agent-id": one,
            "x-claude-code-agent-type": "Explore",
            "x-claude-code-request-class": "subagent",
        }
        for one in ("a7a1", "acf6")
    ],
    "claude code without hints": [{"x-claude-code-agent-id": one} for one in ("a7a1", "acf6")],
    "codex": [
        {
            "x-openai-subagent": "collab_spawn",
            "x-codex-parent-thread-id": "root",
            "session-id": "root",
            "thread-id": one,
        }
        for one in ("child-a", "child-b")
    ],
    "codex review": [{"x-openai-subagent": one, "session_id": "root"} for one in ("review", "compact")],
    "opencode": [{"x-parent-session-id": "ses_a", "x-session-id": one} for one in ("ses_b", "ses_c")],
}


@pytest.mark.parametrize("headers", MAIN.values(), ids=MAIN)
def test_the_main_agent_has_no_name(headers):
    assert read_agent(headers) is None


@pytest.mark.parametrize("headers", SUB.values(), ids=SUB)
def test_sub_agents_are_told_apart_and_our_header_wins(headers):
    names = [read_agent(one) for one in headers]

    assert None not in names
    assert len(set(names)) == 2
    assert read_agent({**headers[0], "x-agent-layer-agent": "mine"}) == "mine"


def test_a_name_of_another_is_short_and_text():
    assert len(read_agent({"x-claude-code-agent-id": "a" * 9000})) == 128
    assert read_agent({"x-claude-code-agent-id": "\udcff"}) == "?"


DIALECTS = {
    "chat": (Completions(), lambda system, prompt: {"messages": chat(("system", system), ("user", prompt))}),
    "messages": (Messages(), lambda system, prompt: {"system": system, "messages": chat(("user", prompt))}),
    "messages of blocks": (
        Messages(),
        lambda system, prompt: {
            "system": [{"type": "text", "text": "You are Claude Code."}, {"type": "text", "text": system}],
            "messages": chat(("user", [{"type": "text", "text": prompt}])),
        },
    ),
    "responses": (Responses(), lambda system, prompt: {"instructions": system, "input": prompt}),
}


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


def ask(dialect, *, system="Be good.", prompt="Fix it.", model="sonnet", **more):
    reader, build = DIALECTS[dialect]
    return reader.read(json.dumps({"model": model, "max_tokens": 9, **build(system, prompt), **more}).encode(), "r-0")


TITLES = [
    "Generate a concise, sentence-case title (3-7 words) that captures the main topic",
    "You are a title generator. You output ONLY a thread title. Nothing else.",
]
COMMIT = "You are an expert software engineer that generates concise, one-line Git commit messages based on the diffs."


@pytest.mark.parametrize("dialect", DIALECTS)
def test_known_kinds_and_patterns_fit_in_every_dialect(dialect):
    rules = SideCalls(["titles", "commits", SideCall(name="mine", prompt="*summarise the tool*", has_tools=False)], "s")

    found = [rules.find(None, ask(dialect, system=system)) for system in (*TITLES, COMMIT, "Be good.")]
    by_prompt = rules.find(None, ask(dialect, prompt="Please SUMMARISE the tool output"))

    assert found == ["titles", "titles", "commits", None]
    assert by_prompt == "mine"


def test_all_that_a_pattern_names_must_fit():
    fits = {"model": "*haiku*", "agent": "sub*", "system": "*title*", "prompt": "*it.", "has_tools": True}
    tool = {"type": "function", "function": {"name": "f"}}
    request = ask("chat", system="A title", model="claude-haiku", tools=[tool])

    for size in range(1, len(fits) + 1):
        for chosen in itertools.combinations(fits, size):
            one = SideCall(**{name: fits[name] for name in chosen})
            assert SideCalls([one], "s").find("sub-1", request) == "declared", chosen
            wrong = SideCall(**{name: fits[name] for name in chosen[1:]}, **{chosen[0]: other(fits[chosen[0]])})
            assert SideCalls([wrong], "s").find("sub-1", request) is None, chosen


@pytest.mark.parametrize("tools", [{}, {"tools": None}, {"tools": []}])
def test_tools_that_are_none_are_no_tools(tools):
    rules = SideCalls([SideCall(system="*good*", has_tools=False)], "s")

    assert rules.find(None, ask("chat", **tools)) == "declared"


@pytest.mark.parametrize("role", ["AUX", " Policy ", "aux"])
def test_a_role_is_known_in_any_case(role):
    caller = judge_caller({"x-agent-layer-role": role}, ask("chat"), [], is_aux_model=False)

    assert (caller.role, caller.reason) == (role.strip().lower(), None)


@pytest.mark.parametrize("role", ["judge", "auxiliary", "aux,policy"])
def test_another_role_is_refused_because_it_would_be_trained(role):
    with pytest.raises(BadInputError, match=r"x-agent-layer-role.*'policy' or 'aux'"):
        judge_caller({"x-agent-layer-role": role}, ask("chat"), [], is_aux_model=False)


def other(value):
    return not value if isinstance(value, bool) else "nothing-of-it"


def test_our_header_then_the_agents_then_the_model_then_patterns_decide():
    rules, request = [SideCalls(["titles"], "s")], ask("chat", system=TITLES[0])
    ours = {"x-agent-layer-role": "policy"}
    theirs = {"x-claude-code-request-class": "auxiliary"}

    def judge(headers, *, is_aux_model):
        caller = judge_caller(headers, request, rules, is_aux_model=is_aux_model)
        return caller.role, caller.reason

    assert judge({**ours, **theirs}, is_aux_model=True) == ("policy", None)
    assert judge({"x-agent-layer-role": "aux"}, is_aux_model=False) == ("aux", None)
    assert judge(theirs, is_aux_model=True) == ("aux", "x-claude-code-request-class")
    assert judge({"x-openai-subagent": "memory_consolidation"}, is_aux_model=False)[0] == "aux"
    assert judge({}, is_aux_model=True) == ("aux", "model")
    assert judge({}, is_aux_model=False) == ("aux", "titles")
    assert judge_caller({}, ask("chat"), rules, is_aux_model=False).role is None


def test_a_models_name_may_lead_to_aux():
    names = ModelNames({"*haiku*": "aux", "gpt-*": "openai/gpt-5", "*": "policy"})

    assert [names.is_aux(name) for name in ("claude-haiku-4", "gpt-5", "sonnet")] == [True, False, False]
    assert names.provider_model("claude-haiku-4") is None
    assert not ModelNames({"*haiku*": "aux"}).needs_provider


@pytest.mark.parametrize("setting", ["{", "titles", '["unheard of"]', '[{"sytem": "x"}]', "[{}]", '[{"name": "x"}]'])
def test_a_declaration_that_says_nothing_is_refused(setting):
    with pytest.raises(BadInputError, match=r"side.calls?"):
        read_side_calls(setting)
