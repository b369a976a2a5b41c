"""Sandboxes of a worker's attempts: taken before the agent runs, frozen and emptied of artifacts when it has ended."""

import asyncio
import base64
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from agent_layer.dispatcher import Lease
from agent_layer.errors import BadInputError
from agent_layer.schema import Content, Task, content_hash
from agent_layer.schema.sandbox import EndOfBox, SandboxSpec, SandboxUsage
from agent_layer.settings import Settings
from envs.commands import CommandTarget
from envs.failures import Ending, RefusedTaskError, end_with_box
from envs.sandbox import AttemptSandbox, CollectedFiles, SupervisorHandle, TakeBox

_SCORING_BOXES = 16
"""Boxes that the scorer of one attempt may have at the same time."""
_MAX_READY = 8
"""Boxes of one spec that wait for the attempts to come."""
_MISSING = "artifact_missing"
"""Finding of an attempt whose agent did not leave a declared artifact."""


class SandboxStage:
    """Takes boxes for attempts, and ends them.

    Args:
        settings: longest wait for a box, and largest artifacts.
        supervisor: makes the boxes; it starts when the first one is needed.
        declared: what the agent or environment declares for tasks that ask for no sandbox; None: nothing.
        artifacts: what it declares for tasks that name no artifacts.
        commands: the command that is the agent, whose attempts have directories; None: it is none.
    """

    def __init__(
        self,
        settings: Settings,
        supervisor: SupervisorHandle,
        declared: SandboxSpec | None = None,
        artifacts: Sequence[str] = (),
        commands: CommandTarget | None = None,
    ) -> None:
        self._settings = settings
        self.supervisor = supervisor
        self._declared = declared
        self._artifacts = list(artifacts)
        self.commands = commands
        self._wanted: dict[str, int] = {}
        """Boxes to have ready, by hash of their spec, as the supervisor knows it."""
        self._expecting: asyncio.Task[None] | None = None

    def spec_for(self, task: Task) -> SandboxSpec | None:
        """Return what an attempt's box has to be; None: it has none."""
        spec = task.sandbox or self._declared
        if spec is None or self._declared is None or self.commands is None:
            return spec
        return msgspec.structs.replace(spec, mounts=self._declared.mounts)  # where a command finds its programs

    def expect(self, tasks: Iterable[Task]) -> None:
        """Have boxes ready for these tasks, which the queue holds next; none for any other."""
        specs = [spec for task in tasks if (spec := self.spec_for(task)) is not None]
        by_hash = {spec.hash(): spec for spec in specs}
        counts = Counter(spec.hash() for spec in specs)
        wanted = {key: min(number, _MAX_READY) for key, number in counts.items()}
        if wanted != self._wanted and self.supervisor.is_running:
            self._wanted = wanted
            self._expecting = asyncio.create_task(
                self.supervisor.expect((by_hash[key], number) for key, number in wanted.items())
            )

    async def take(self, lease: Lease, on_lost: Callable[[EndOfBox], None]) -> AttemptSandbox | None:
        """Return the attempt's box with the task's files; None: it has none.

        Args:
            lease: of the attempt.
            on_lost: called with the reason when the box ends before the agent has.

        Raises:
            RefusedTaskError: no box can be made as the task asks.
            SandboxError: the machine could not make one.
        """
        task = lease.task
        if (spec := self.spec_for(task)) is None:
            return None
        request = TakeBox(
            owner=lease.token,
            task=task.id,
            spec=spec,
            files=task.files,
            seconds=self._settings.sandbox_start_seconds,
            lifetime_seconds=task.limits.sandbox_seconds,
        )
        try:
            taken = await self.supervisor.take_box(request, on_lost)
        except BadInputError as error:
            raise RefusedTaskError(*error.args) from error
        return AttemptSandbox(taken.facts, taken.address)

    async def disconnect(self, lease: Lease, box: AttemptSandbox) -> None:
        """Use the attempt's box no more, once the agent has ended."""
        if self.commands is not None:
            await self.commands.write_diff(lease.trajectory_id)
        await box.disconnect()

    async def collect(self, lease: Lease) -> CollectedFiles:
        """Take the artifacts out of the attempt's box, and end it; of a command without a box, out of its directory.

        Raises:
            SandboxError: the machine lost the box, so what the agent did in it is not known.
            OSError: the directory cannot be read.
        """
        paths, max_bytes = [*(lease.task.artifacts or self._artifacts)], self._settings.artifact_bytes
        if self.commands is not None and self.spec_for(lease.task) is None:
            return await self.commands.collect(lease.trajectory_id, paths, max_bytes)
        if self.commands is not None and self.commands.is_boxed and self.commands.options.diff is not None:
            paths.append(self.commands.options.diff)
        return await self.supervisor.collect(lease.token, paths, max_bytes)

    async def allow_scoring(self, lease: Lease) -> str:
        """Return the address at which the attempt's scorer gets fresh boxes, as a rule like the agent's.

        Raises: SandboxError: the supervisor cannot be started.
        """
        spec = self.spec_for(lease.task) or SandboxSpec()
        return await self.supervisor.allow_scoring(lease.token, lease.task.id, spec, _SCORING_BOXES)

    async def end(self, lease: Lease) -> SandboxUsage | None:
        """End what is left of an attempt's boxes and directories.

        Returns: what its boxes have used; None: nothing, or it is not known.
        """
        if self.commands is not None:
            await self.commands.remove(lease.trajectory_id)
        usage = await self.supervisor.end_scoring(lease.token)
        await self.supervisor.end_owner(lease.token)
        has_used = usage is not None and (usage.kind is not None or usage.num_scoring_boxes > 0)
        return usage if has_used else None


def judge_files(ending: Ending, files: CollectedFiles) -> tuple[Ending, tuple[str, ...]]:
    """Return the ending of an attempt with its files taken, and what was noticed.

    A missing artifact is an empty one. Artifacts that are too large count as not left, and end the attempt as
    truncated: the policy wrote more than it may, as with tokens. So does a box that its own commands ended.
    """
    findings = tuple(f"{_MISSING}: {path}" for path in files.missing)
    if files.end is not None:
        return (end_with_box(files.end) if ending.status != "truncated" else ending), findings
    if not files.too_large:
        return ending, findings
    error = "the declared artifacts are larger than artifact_bytes; none was taken"
    is_policy = ending.status == "completed"
    return (Ending(status="truncated", cause="policy", error=error) if is_policy else ending), findings


def make_content(trajectory_id: str, archive: bytes) -> Content:
    """Return an archive of artifacts as a content: in base64, as a JSON string."""
    body = msgspec.json.encode(base64.b64encode(archive).decode())
    return Content(trajectory_id=trajectory_id, hash=content_hash(body), body=body)
