"""The check of one harness: the installed agent, unmodified, behind our gateway and a scripted engine, part by part."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from agent_layer import __version__
from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.infra import KILL_NOW, REAPER_PROGRAM
from agent_layer.local import ScriptedEngine, Stack, run_stack, serve_in_thread
from agent_layer.schema import OpenedRollout, OpenRequest, TaskView
from agent_layer.settings import Settings, agent_environment
from agent_layer.store import open_store
from envs.commands import CommandPlace
from envs.harnesses import Harness, Installation, PartFigures, Qualification
from tracer.transport import GatewayClient
from trainer_adapter.data import read_samples
from trainer_adapter.qualification.account import CUT, account_tokens, list_answers
from trainer_adapter.qualification.render import RecordedPart, find_needed_lengths, render_recordings
from trainer_adapter.qualification.script import PROMPT, Part, ScriptedModel, find_fault, list_parts

_PART_SECONDS = 1200.0
_POLL_SECONDS = 0.05
_NUM_CUT_WORDS = 20
"""Words of a slow answer after which the agent is killed."""
_TAIL_LENGTH = 1500


def check_harness(
    settings: Settings, harness: Harness, report: Callable[[str], None], only: str | None = None
) -> Qualification:
    """Drive an installed agent through the script.

    Args:
        settings: name the directory that it is installed in.
        harness: the agent.
        report: receives each part when it begins.
        only: name of the only part to run; None: all.

    Raises:
        BadInputError: it is not installed at its pinned version, or has no such part.
        UnreachableError: the gateway does not start.
    """
    chosen = [part for part in list_parts(harness) if only in (None, part.name)]
    if not chosen:
        names = ", ".join(repr(part.name) for part in list_parts(harness))
        raise BadInputError(f"harness {harness.name!r}: expected --part as one of {names}, found {only!r}")
    installation = Installation(settings, harness)
    program = installation.require_program()
    engine = ScriptedEngine(model="policy")
    with TemporaryDirectory(prefix="al-check-", ignore_cleanup_errors=True) as directory, serve_in_thread(engine):
        own = {
            "dir": Path(directory) / "agent-layer",
            "run": "check",
            "log_roll_seconds": 0.05,
            "ship_poll_seconds": 0.02,
        }
        nothing = ("redis_url", "objects_url", "gateway_url", "ingest_url", "policy_url", "vllm_urls", "model")
        private = settings.model_copy(update={**dict.fromkeys(nothing), **own})
        with run_stack(private, engine.url) as stack:
            check = _Check(harness, program, engine, stack, Path(directory))
            parts: list[PartFigures] = []
            for part in chosen:
                report(f"{harness.name}: {part.name}")
                parts.append(check.run(part))
    rendered = render_recordings(check.rollouts)
    return Qualification(
        harness=harness.name,
        version=harness.version,
        checked_on=datetime.now(UTC).date().isoformat(),
        agent_layer=__version__,
        interpreter=installation.interpreter or "",
        first_request=check.first_request,
        parts=parts,
        rendered=rendered,
        needs=find_needed_lengths(rendered, harness.output_tokens),
    )


class _Check:
    """One agent, its engine and its gateway."""

    def __init__(self, harness: Harness, program: Path, engine: ScriptedEngine, stack: Stack, directory: Path) -> None:
        self._harness, self._program, self._engine = harness, program, engine
        self._settings, self._directory = stack.settings, directory
        assert stack.settings.gateway_url is not None
        self._gateway = GatewayClient(stack.settings.gateway_url, stack.settings.api_key)
        self.first_request = 0
        """Tokens of the policy's first prompt of all."""
        self.rollouts: list[RecordedPart] = []

    def run(self, part: Part) -> PartFigures:
        """Run one part as one rollout of a group, and count its tokens."""
        model = ScriptedModel(self._harness, part.turns, self._engine)
        self._engine.script = model
        self._engine.calls.clear()
        name = part.name.replace(" ", "-")
        opened = self._gateway.open(
            OpenRequest(task_id=name, run="check", group_id=f"check.{name}", sampling=self._harness.sampling)
        )
        fault = self._drive(part, opened)
        self._gateway.end(opened.rollout_id, reward=1.0)
        trajectory = open_store(self._settings).get(opened.trajectory_id)
        self.rollouts.append(RecordedPart(calls=model.recordings, is_long=part.is_long))
        calls = [call for call in self._engine.calls if any(call.token_ids)]
        account = account_tokens(list_answers(calls), trajectory, read_samples(trajectory))
        prompts = [
            step.prompt_token_ids for step in trajectory.steps if step.role == "policy" and step.prompt_token_ids
        ]
        self.first_request = self.first_request or len(prompts[0] if prompts else ())
        num_aux = sum(step.role == "aux" and step.status != "error" for step in trajectory.steps)
        allowed = set(self._harness.findings)
        return PartFigures(
            name=part.name,
            num_calls=len(calls),
            num_steps=sum(step.status != "error" for step in trajectory.steps),
            findings=[one for one in account.findings if one not in allowed],
            num_agents=len(account.agents),
            fault=fault
            or find_fault(
                model,
                part,
                self._harness,
                num_aux=num_aux,
                num_cut=account.lost.get(CUT, 0),
                num_agents=len(account.agents),
            ),
            **{name: getattr(account, name) for name in _COPIED},
        )

    def _drive(self, part: Part, opened: OpenedRollout) -> str | None:
        """Start the agent, where the part says kill and resume it; return why it failed."""
        top = self._directory / opened.trajectory_id
        home, work = top / "home", top / "work"
        home.mkdir(parents=True)
        work.mkdir()
        base = _base_environment(home)
        _make_repository(work, base)
        harness = self._harness
        if part.is_long and harness.compact_tokens is not None:
            harness = msgspec.structs.replace(harness, context_tokens=harness.compact_tokens)
        place = CommandPlace(
            task=TaskView(id=part.name, task_type="check", input=PROMPT),
            base_url=opened.base_url,
            api_key=opened.api_key,
            model=opened.model,
            home=str(home),
            workdir=str(work),
            is_boxed=False,
        )
        for resumes in (False, True) if part.is_cut else (False,):
            plan = harness.make_plan(self._program, place, resumes=resumes)
            for path, text in plan.home_files.items():
                (home / path).parent.mkdir(parents=True, exist_ok=True)
                (home / path).write_text(text)
            environment = {name: text for name, text in {**base, **plan.env}.items() if text is not None}
            is_cut = part.is_cut and not resumes
            if fault := self._run(plan.argv, environment, work, is_cut=is_cut):
                return fault
        return None

    def _run(self, argv: list[str], environment: Mapping[str, str], work: Path, *, is_cut: bool) -> str | None:
        log = work.parent / "output"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", REAPER_PROGRAM, "-", *argv], cwd=work, env=environment, bufsize=0,
                stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                self._wait(process, is_cut=is_cut)
            finally:  # the reaper ends daemons, too
                assert process.stdin is not None
                with suppress(BrokenPipeError):
                    process.stdin.write(KILL_NOW)
                process.stdin.close()
                process.wait()
        tail = log.read_bytes()[-_TAIL_LENGTH:].decode("utf-8", "replace").strip()
        if is_cut:
            deadline = time.monotonic() + _PART_SECONDS
            while not all(one.ended for one in self._engine.calls) and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)  # what goes on meanwhile, the next call would make quick
            return None if process.returncode == -signal.SIGKILL else f"it ended before its answer was cut: {tail}"
        return f"it ended with status {process.returncode}: {tail}" if process.returncode else None

    def _wait(self, process: "subprocess.Popen[bytes]", *, is_cut: bool) -> None:  # kept: three ways to end
        """Wait for its end, for the words after which it is cut, or for the limit."""
        deadline = time.monotonic() + _PART_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if is_cut and self._engine.token_seconds and len(self._engine.calls[-1].token_ids[0]) > _NUM_CUT_WORDS:
                return
            time.sleep(_POLL_SECONDS)


_COPIED = ("sampled", "trained", "lost", "num_rows", "longest_row", "row_tokens", "forks")


def _base_environment(home: Path) -> dict[str, str]:
    """Return the variables of this process without addresses and keys of models, and with a HOME of its own."""
    kept = {
        name: value
        for name, value in agent_environment().items()
        if not name.startswith(("OPENAI_", "ANTHROPIC_", "CLAUDE", "XDG_", "GEMINI_", "GIT_"))
    }
    git = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "agent", "GIT_AUTHOR_EMAIL": "agent@localhost"}
    git |= {"GIT_COMMITTER_NAME": "agent", "GIT_COMMITTER_EMAIL": "agent@localhost"}
    temporary = home.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    return kept | git | {"HOME": str(home), "TMPDIR": str(temporary)}


def _make_repository(work: Path, variables: Mapping[str, str]) -> None:  # kept: git's words are no part of the check
    """Make the working directory a git repository with one commit."""
    (work / "README.md").write_text("# A small project\n")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "begin"]):
        try:
            subprocess.run(["git", *command], cwd=work, env=variables, capture_output=True, text=True, check=True)
        except FileNotFoundError as error:
            raise BadInputError("harnesses check: git is missing, which its script needs; install it") from error
        except subprocess.CalledProcessError as error:
            raise AgentFailedError(f"git {command[0]}: {error.stderr.strip()}; check that it runs by hand") from error
