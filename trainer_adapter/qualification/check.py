"""The check of one harness: the installed agent, unmodified, behind our gateway and a scripted engine, part by part."""

import asyncio
import dataclasses
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from agent_layer import __version__
from agent_layer.errors import AgentFailedError, BadInputError, SandboxError
from agent_layer.local import ScriptedEngine, Stack, run_stack, serve_in_thread
from agent_layer.schema import OpenedRollout, OpenRequest, Task
from agent_layer.settings import Settings, program_environment
from agent_layer.store import open_store
from envs.commands import CommandEnd, CommandOptions, CommandTarget
from envs.harnesses import Harness, Installation, PartFigures, Qualification, make_harness_target
from envs.sandbox import AttemptSandbox, SupervisorHandle, TakeBox
from tracer.core import Rollout
from tracer.transport import GatewayClient, RewardSink
from trainer_adapter.data import read_samples
from trainer_adapter.qualification.account import CUT, account_tokens, list_answers
from trainer_adapter.qualification.render import RecordedPart, find_needed_lengths, render_recordings
from trainer_adapter.qualification.script import PROMPT, Part, ScriptedModel, find_fault, list_parts

_RUN = "check"
_PART_SECONDS = 1200.0
_POLL_SECONDS = 0.05
_NUM_CUT_WORDS = 20
"""Words of a slow answer after which the agent is killed."""
_TAIL_LENGTH = 1500


def check_harness(
    settings: Settings,
    harness: Harness,
    report: Callable[[str], None],
    only: str | None = None,
    options: CommandOptions | None = None,
) -> Qualification:
    """Drive an installed agent through the script, as attempts of ``work --harness`` run it.

    Args:
        settings: name the directory that it is installed in.
        harness: the agent.
        report: receives each part when it begins.
        only: name of the only part to run; None: all.
        options: name the sandbox; None: one of the best kind that works here.

    Raises:
        BadInputError: it is not installed at its pinned version, has no such part, or no sandbox can be as asked.
        UnreachableError: the gateway does not start.
    """
    chosen = [part for part in list_parts(harness) if only in (None, part.name)]
    if not chosen:
        names = ", ".join(repr(part.name) for part in list_parts(harness))
        raise BadInputError(f"harness {harness.name!r}: expected --part as one of {names}, found {only!r}")
    installation = Installation(settings, harness)
    engine = ScriptedEngine(model="policy")
    with TemporaryDirectory(prefix="al-check-", ignore_cleanup_errors=True) as directory, serve_in_thread(engine):
        template = Path(directory) / "template"
        _make_repository(template)
        options = msgspec.structs.replace(options or CommandOptions(), workdir=str(template))
        target = make_harness_target(settings, harness, options)
        own = {
            "dir": Path(directory) / "agent-layer",
            "run": _RUN,
            "log_roll_seconds": 0.05,
            "ship_poll_seconds": 0.02,
        }
        nothing = ("redis_url", "objects_url", "gateway_url", "ingest_url", "policy_url", "vllm_urls", "model")
        private = settings.model_copy(update={**dict.fromkeys(nothing), **own})
        with run_stack(private, engine.url) as stack:
            check = _Check(harness, installation.program, target, engine, stack)
            parts = asyncio.run(check.run_parts(chosen, report))
    rendered = render_recordings(check.rollouts)
    return Qualification(
        harness=harness.name,
        version=harness.version,
        checked_on=datetime.now(UTC).date().isoformat(),
        agent_layer=__version__,
        interpreter=installation.interpreter or "",
        box=(target.options.box and target.options.box.kind) or "none",
        first_request=check.first_request,
        parts=parts,
        rendered=rendered,
        needs=find_needed_lengths(rendered, harness.output_tokens),
    )


class _Check:
    """One agent, its engine and its gateway."""

    def __init__(
        self, harness: Harness, program: Path, target: CommandTarget, engine: ScriptedEngine, stack: Stack
    ) -> None:
        self._harness, self._program, self._target, self._engine = harness, program, target, engine
        self._settings = stack.settings
        assert stack.settings.gateway_url is not None
        self._gateway = GatewayClient(stack.settings.gateway_url, stack.settings.api_key)
        self.first_request = 0
        """Tokens of the policy's first prompt of all."""
        self.rollouts: list[RecordedPart] = []

    async def run_parts(self, parts: Sequence[Part], report: Callable[[str], None]) -> list[PartFigures]:
        """Run parts one after the other."""
        boxes, figures = SupervisorHandle(self._settings), list[PartFigures]()
        try:
            for part in parts:
                report(f"{self._harness.name}: {part.name}")
                figures.append(await self._run_part(part, boxes))
        finally:
            await self._target.close()
            await boxes.close()
        return figures

    async def _run_part(self, part: Part, boxes: SupervisorHandle) -> PartFigures:
        """Run one part as one rollout of a group, and count its tokens."""
        model = ScriptedModel(self._harness, part.turns, self._engine)
        self._engine.script = model
        self._engine.calls.clear()
        name = part.name.replace(" ", "-")
        opened = self._gateway.open(
            OpenRequest(task_id=name, run=_RUN, group_id=f"check.{name}", sampling=self._harness.sampling)
        )
        async with self._open_box(opened.trajectory_id, boxes) as box:
            fault = await self._drive(part, opened, box)
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

    @asynccontextmanager
    async def _open_box(self, owner: str, boxes: SupervisorHandle) -> AsyncGenerator[AttemptSandbox | None]:
        if (spec := self._target.options.box) is None:
            yield None
            return
        request = TakeBox(owner=owner, task=owner, spec=spec, seconds=self._settings.sandbox_start_seconds)
        taken = await boxes.take_box(request, lambda _: None)  # the next use of a lost box raises
        box = AttemptSandbox(taken.facts, taken.address)
        try:
            yield box
        finally:
            await box.disconnect()
            await boxes.end_owner(owner)

    async def _drive(self, part: Part, opened: OpenedRollout, box: AttemptSandbox | None) -> str | None:
        """Start the agent, where the part says kill and resume it; return why it failed."""
        harness = self._harness
        if part.is_long and harness.compact_tokens is not None:
            harness = msgspec.structs.replace(harness, context_tokens=harness.compact_tokens)
        task = Task(id=part.name, run=_RUN, task_type="check", input=PROMPT)
        rollout = dataclasses.replace(Rollout.of(opened, run=_RUN, sink=RewardSink(self._gateway)), box=box)
        for resumes in (False, True) if part.is_cut else (False,):
            plan = partial(harness.make_plan, self._program, resumes=resumes)
            running = self._target.run(task, rollout, plan, continues=resumes)
            if fault := await self._wait(running, is_cut=part.is_cut and not resumes):
                return fault
        await self._target.remove(opened.trajectory_id)
        return None

    async def _wait(self, running: Coroutine[object, object, CommandEnd], *, is_cut: bool) -> str | None:
        """Wait for the agent's end, for the words after which it is killed, or for the limit."""
        deadline = time.monotonic() + _PART_SECONDS
        agent = asyncio.create_task(running)
        try:
            while not agent.done() and not (is_cut and self._is_amid_answer()) and time.monotonic() < deadline:
                await asyncio.wait({agent}, timeout=_POLL_SECONDS)
            if agent.done():
                end = await agent
                tail = f"{end.stdout}{end.stderr}"[-_TAIL_LENGTH:].strip()
                if is_cut:
                    return f"it ended before its answer was cut: {tail}"
                return f"it ended with status {end.exit_code}: {tail}" if end.exit_code else None
        except (AgentFailedError, SandboxError) as error:
            return str(error)
        finally:
            agent.cancel()
            await asyncio.wait({agent})
        if time.monotonic() >= deadline:
            return f"it did not end within {_PART_SECONDS:g} s"
        await asyncio.to_thread(self._wait_for_engine, deadline)
        return None

    def _wait_for_engine(self, deadline: float) -> None:
        """Wait until the cut call has ended: what goes on, the next call would make quick."""
        while not all(one.ended for one in self._engine.calls) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _is_amid_answer(self) -> bool:
        return bool(self._engine.token_seconds) and len(self._engine.calls[-1].token_ids[0]) > _NUM_CUT_WORDS


_COPIED = ("sampled", "trained", "lost", "num_rows", "longest_row", "row_tokens", "forks")


def _make_repository(place: Path) -> None:  # kept: git's words are no part of the check
    """Make a git repository with one commit, in which agents can make more."""
    place.mkdir()
    (place / "README.md").write_text("# A small project\n")
    variables = {**program_environment(), "HOME": str(place.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    begin, name, mail = ["init", "-q", "-b", "main"], ["user.name", "agent"], ["user.email", "agent@localhost"]
    for command in (begin, ["config", *name], ["config", *mail], ["add", "-A"], ["commit", "-q", "-m", "begin"]):
        try:
            subprocess.run(["git", *command], cwd=place, env=variables, capture_output=True, text=True, check=True)
        except FileNotFoundError as error:
            raise BadInputError("harnesses check: git is missing, which its script needs; install it") from error
        except subprocess.CalledProcessError as error:
            raise AgentFailedError(f"git {command[0]}: {error.stderr.strip()}; check that it runs by hand") from error
