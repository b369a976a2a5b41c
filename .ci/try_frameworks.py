"""Agents of frameworks, each in an environment of its own, behind the real gateway and a scripted engine, in a group.

    python .ci/try_frameworks.py [NAME …] [--dir DIR]    try these, or all, and keep what came out

Each agent of ``tests/frameworks/programs.py`` runs whole and streamed, with a policy that answers at once and with one
that thinks. One that forces a form runs a third time, with a policy that misses it. What came out stands in
``tests/frameworks/tried.json``, from which ``.ci/write_frameworks.py`` writes the documents.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from uuid import uuid4

import msgspec
from frameworks import FRAMEWORKS, TRIED, Framework, Rollout, Tried, read_tried

from agent_layer.local import ScriptAnswer, ScriptedEngine, ScriptPrompt, Stack, run_stack, serve_in_thread
from agent_layer.schema import JsonObject, OpenedRollout, OpenRequest, as_json_objects
from agent_layer.settings import Settings, agent_environment
from agent_layer.store import open_store
from tracer.transport import GatewayClient
from trainer_adapter.data import read_samples
from trainer_adapter.qualification.account import account_tokens, list_answers

PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "frameworks" / "programs.py"
SECONDS = 900.0
QUIET = {
    "OTEL_SDK_DISABLED": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "AGNO_TELEMETRY": "false",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "ANONYMIZED_TELEMETRY": "false",
}
_FINAL_TOOLS = {"final_answer": {"answer": "43"}, "final_result": {"answer": 43}, "Answer": {"answer": 43}}
"""Tools by which agents take their result, and the arguments that they take."""


class Answered(msgspec.Struct, frozen=True):
    """What came of a rollout in the program."""

    result: str = ""
    fault: str | None = None


class Policy:
    """Multiplies and adds at once, adds, and answers in the form that is asked, whatever the framework."""

    def __init__(self, *, thinks: bool = False, misses_form: bool = False) -> None:
        self._thinks, self._misses_form = thinks, misses_form

    def __call__(self, prompt: ScriptPrompt) -> ScriptAnswer:
        """Answer one call."""
        said = self._answer(prompt)
        if not self._thinks or isinstance(said, list):
            return said
        return {"reasoning": "let me see", **(said if isinstance(said, dict) else {"content": said})}

    def _answer(self, prompt: ScriptPrompt) -> str | list[str] | JsonObject:
        text = json.dumps(prompt.messages)
        num_turns = sum(message.get("role") in ("assistant", "model") for message in prompt.messages)
        names = [str(tool.get("function", tool).get("name")) for tool in as_json_objects(prompt.tools)]
        by_end = {end: name for name in names for end in ("add", "multiply") if name.endswith(end)}
        if "[[ ##" in text:
            return "no idea" if self._misses_form else _react(text)
        if num_turns < 2 and len(by_end) == 2:
            first = [("multiply", {"a": 6, "b": 7}), ("add", {"a": 40, "b": 2})]
            return _call(
                *((by_end[name], given) for name, given in (first if num_turns == 0 else [("add", {"a": 42, "b": 1})]))
            )
        if self._misses_form:
            return "no idea"
        if not names and "final_answer(" in text:
            return _code("print(multiply(6, 7))" if num_turns == 0 else "final_answer(add(42, 1))")
        if found := [(name, given) for name, given in _FINAL_TOOLS.items() if name in names]:
            return _call(found[0])
        return '{"answer": 43}' if "nswer with JSON" in text else "it is 43"


def _call(*calls: tuple[str, JsonObject]) -> JsonObject:
    return {
        "tool_calls": [
            {
                "id": f"call-{uuid4()}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in calls
        ]
    }


def _code(text: str) -> str:
    return f"Thought: as asked\n<code>\n{text}\n</code>"


def _react(text: str) -> list[str]:
    """Speak as DSPy asks for it: fields after headers on lines of their own."""
    if "next_tool_name" not in text:
        fields = {"reasoning": "as the tools say", "answer": "43"}
    else:
        name, given = ("finish", {}) if "observation_0" in text else ("multiply", {"a": 6, "b": 7})
        fields = {"next_thought": "I calculate", "next_tool_name": name, "next_tool_args": json.dumps(given)}
    return [part for field, value in fields.items() for part in (f"\n[[ ## {field} ## ]]\n", f"{value}\n")]


class Trial:
    """One gateway and engine for all that is tried."""

    def __init__(self, stack: Stack, engine: ScriptedEngine, directory: Path) -> None:
        assert stack.settings.gateway_url is not None
        self._settings, self._engine, self._directory = stack.settings, engine, directory
        self._gateway = GatewayClient(stack.settings.gateway_url, stack.settings.api_key)

    def try_agents(self, framework: Framework, python: Path) -> Iterator[Tried]:
        """Run the agents of a framework in groups: a policy that answers at once, one that thinks, one that misses."""
        names = {requirement.partition("==")[0].partition("[")[0].lower() for requirement in framework.requires}
        versions = {name: version for name, version in _installed(python) if name.lower() in names}
        with Program(python, self._directory / framework.name) as program:
            for agent in framework.agents:
                for is_streamed in (False, True) if framework.is_streamed else (False,):
                    run = partial(self._run, program, agent, is_streamed=is_streamed)
                    yield Tried(
                        agent=agent,
                        framework=framework.name,
                        mode="streamed" if is_streamed else "whole",
                        tried_on=datetime.now(UTC).date().isoformat(),
                        versions=versions,
                        rollouts=[run(Policy()), run(Policy(thinks=True))],
                        missed=run(Policy(misses_form=True)) if agent in framework.forced else None,
                    )

    def _run(self, program: "Program", agent: str, policy: Policy, *, is_streamed: bool) -> Rollout:
        self._engine.script = policy
        self._engine.calls.clear()
        opened = self._gateway.open(OpenRequest(task_id=agent, run="frameworks", group_id=f"{agent}.{is_streamed}"))
        answered = program.ask(agent, opened, is_streamed=is_streamed)
        fault, status = answered.fault, "failed" if answered.fault else "completed"
        self._gateway.end(opened.rollout_id, reward=0.0 if fault else 1.0, status=status, error=fault)
        trajectory = open_store(self._settings).get(opened.trajectory_id)
        calls = [call for call in self._engine.calls if any(call.token_ids)]
        account = account_tokens(list_answers(calls), trajectory, read_samples(trajectory))
        outcome = trajectory.outcome
        assert outcome is not None
        return Rollout(
            num_calls=len(calls),
            num_steps=sum(step.status != "error" for step in trajectory.steps),
            sampled=account.sampled,
            trained=account.trained,
            lost=account.lost,
            forks=account.forks,
            findings=account.findings,
            num_rows=account.num_rows,
            result=answered.result,
            fault=fault,
            ending=f"{outcome.status}{f', {outcome.cause}' if outcome.cause else ''}",
        )


class Program:
    """The agents of one framework, in a process of its environment; a context manager that ends it."""

    def __init__(self, python: Path, home: Path) -> None:
        home.mkdir()
        kept = agent_environment().items()
        own = {name: text for name, text in kept if not name.startswith(("OPENAI_", "ANTHROPIC_", "PYTHON"))}
        self._process = subprocess.Popen(
            [str(python), str(PROGRAM)], cwd=home, env=own | QUIET | {"HOME": str(home), "DSPY_CACHEDIR": str(home)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def __enter__(self) -> "Program":
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def ask(self, agent: str, opened: OpenedRollout, *, is_streamed: bool) -> Answered:
        """Run one rollout, and return what came of it."""
        root = opened.base_url.removesuffix("/v1")
        variables = {
            "OPENAI_BASE_URL": opened.base_url,
            "OPENAI_API_BASE": opened.base_url,
            "OPENAI_API_KEY": opened.api_key,
            "ANTHROPIC_BASE_URL": root,
            "ANTHROPIC_API_KEY": opened.api_key,
            "GOOGLE_GEMINI_BASE_URL": root,
            "GEMINI_API_KEY": opened.api_key,
        }
        rollout = {"agent": agent, "is_streamed": is_streamed, "variables": variables}
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        if self._process.poll() is not None:
            return Answered(fault=f"its process ended with status {self._process.returncode}")
        stdin.write(json.dumps(rollout) + "\n")
        stdin.flush()
        limit = Timer(SECONDS, self._process.kill)
        limit.start()
        line = stdout.readline()
        limit.cancel()
        return msgspec.json.decode(line, type=Answered) if line else Answered(fault=f"no answer within {SECONDS:g} s")


def _installed(python: Path) -> list[tuple[str, str]]:
    folders = [str(path) for path in (python.parents[1] / "lib").glob("python*/site-packages")]
    found: list[Distribution] = list(distributions(path=folders))
    return [(one.metadata["Name"], one.version) for one in found]


def install(framework: Framework, directory: Path) -> Path:
    """Make the environment of a framework; return its Python."""
    place = directory / framework.name
    python = place / "bin" / "python"
    stamp = place / "installed"
    wanted = "\n".join(framework.requires)
    if not stamp.exists() or stamp.read_text() != wanted:
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, place], check=True)
        subprocess.run([uv, "pip", "install", "-q", "--python", python, "pydantic", *framework.requires], check=True)
        stamp.write_text(wanted)
    return python


def main() -> int:
    """Try what is named, and keep what came out; return 1 if an agent failed or a token of the policy was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="frameworks; default: all")
    parser.add_argument("--dir", type=Path, default=Path("build") / "frameworks", help="where environments are kept")
    options = parser.parse_args()
    known = {one.name: one for one in FRAMEWORKS}
    chosen = [known[name] for name in options.names or known]
    options.dir.mkdir(parents=True, exist_ok=True)
    is_good = True
    engine = ScriptedEngine(model="policy")
    with TemporaryDirectory(prefix="al-frameworks-", ignore_cleanup_errors=True) as scratch, serve_in_thread(engine):
        settings = Settings(
            dir=Path(scratch) / "agent-layer",
            run="frameworks",
            logprobs_mode="processed",
            log_roll_seconds=0.05,
            ship_poll_seconds=0.02,
        )
        with run_stack(settings, engine.url) as stack:
            trial = Trial(stack, engine, Path(scratch))
            for framework in chosen:
                python = install(framework, options.dir.absolute())
                for one in trial.try_agents(framework, python):
                    is_good &= one.is_good
                    print(one.line(), flush=True)
                    known_before = {(each.agent, each.mode): each for each in read_tried()}
                    every = known_before | {(one.agent, one.mode): one}
                    TRIED.write_bytes(
                        b"[\n%b\n]\n" % b",\n".join(msgspec.json.encode(every[key]) for key in sorted(every))
                    )
    return int(not is_good)


if __name__ == "__main__":
    os.environ.pop("AGENT_LAYER_DIR", None)
    sys.exit(main())
