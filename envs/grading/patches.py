"""Patches: what an attempt changed is applied to the start in a fresh box, and judged there by another scorer.

No box in which the agent worked is judged, and nothing that a patch cannot say travels: no link out of the tree, no
binary file. A patch that does not apply scores 0 and says why.
"""

import io
import re
import tarfile
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import JsonObject
from agent_layer.schema.sandbox import ExecResult, Sandbox, SandboxSpec, Snapshot
from envs.grading.calling import call_scorer, has_shared_judge
from envs.grading.prepared_box import UnfitArtifactsError, allow_seconds, prepare_box
from envs.grading.scorer import Judge, Scorer, ScoringContext, Verdict
from envs.grading.values import ValueScorer
from envs.registry import hash_scorer
from envs.sandbox import expand_patterns

Submission: TypeAlias = Literal["files", "artifact", "answer"]
"""Where the patch is: what differs between the start and the files that the agent left; a file among these; or the text
that it returned, which may have it in one fenced block."""
MAX_PATCH: Final = 4 << 20
"""Bytes of a patch."""
_GIT_SECONDS: Final = 60.0
_VARIABLES: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/tmp", "LC_ALL": "C.UTF-8"}
_DIFF: Final = ("diff", "--cached", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")
_LEFT_OUT: Final = b"__pycache__/\n*.py[co]\n.pytest_cache/\n"
_FENCED: Final = re.compile(r"^```[^\n`]*\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_NOT_FOUND: Final = 127
_SUBMODULE: Final = re.compile(r"^ (create|mode change \d+ =>|delete) (mode )?160000 ", re.MULTILINE)
_MAX_SHOWN_LENGTH: Final = 500


class PatchScorer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Judges the start with the agent's patch by another scorer. Contract: ``Scorer``.

    The start is what the task's ``files`` and the image have. The other scorer sees the patched files as artifacts.
    """

    scorer: Scorer = msgspec.field(default_factory=ValueScorer)
    submission: Submission = "files"
    path: str = "changes.patch"
    """File of the patch, for ``artifact``; ``work --diff PATH`` writes one."""
    seconds: float = _GIT_SECONDS
    """Longest run of git; shorter where the task limits ``score_seconds``."""
    spec: SandboxSpec | None = None
    """Box to patch in, which needs git; None: that of the agent."""

    @property
    def judge(self) -> Judge:
        """That of the other scorer."""
        return "shared" if has_shared_judge(self.scorer) else "own"

    @property
    def version(self) -> str:
        """Differs where answers may differ."""
        options = (self.submission, self.path, self.seconds, self.spec)
        return f"1 {hash_scorer(self.scorer)} {options!r}"

    async def score(self, context: ScoringContext) -> Verdict:
        """Apply the patch, and return the verdict of the other scorer; 0 for every reward where it does not apply.

        Raises:
            BadInputError: the box has no git.
            SandboxError: no box could be made, or it was lost.
        """
        try:
            patched = await self._apply(context, await self._read_patch(context))
        except UnfitArtifactsError as error:
            names = list(context.task.rewards) or ["reward"]
            return Verdict(scores=dict.fromkeys(names, 0.0), evidence={"error": str(error)}, judge=self.judge)
        return await call_scorer(self.scorer, patched)

    async def _read_patch(self, context: ScoringContext) -> bytes:
        """Return the submitted patch; empty: nothing was changed."""
        match self.submission:
            case "answer":
                text = context.result if isinstance(context.result, str) else ""
                blocks = _FENCED.findall(text)
                return (blocks[0] if len(blocks) == 1 else text).encode("utf-8", "replace")
            case "artifact":
                try:
                    box = await prepare_box(context, spec=self.spec)
                    return await box.read(self.path, max_bytes=MAX_PATCH)
                except FileNotFoundError:
                    return b""
                except OSError as error:
                    raise UnfitArtifactsError(f"patch {self.path}: it cannot be read, {error}") from error
            case "files":
                return b"" if context.artifacts is None else await self._compare(context, context.artifacts)

    async def _compare(self, context: ScoringContext, artifacts: Snapshot) -> bytes:
        """Return the difference between the start and what the agent left."""
        box = await prepare_box(_Context(context, None, None), spec=self.spec)
        start = (await box.exec(["mktemp", "-d"])).stdout.decode().strip()  # boxes of kind process share /tmp
        git = ("-c", "core.autocrlf=false", "-c", "core.safecrlf=false", f"--git-dir={start}", "--work-tree=.")
        await self._git(context, box, [*git, "init", "--quiet"])
        await box.write(f"{start}/info/attributes", b"* -text -ident !filter !diff !working-tree-encoding\n")
        await box.write(f"{start}/info/exclude", _LEFT_OUT)
        await self._git(context, box, [*git, "add", "--all", "--force"])
        tree = (await self._git(context, box, [*git, "write-tree"])).decode().strip()
        if taken := (await expand_patterns(box.list, context.task.artifacts))[0]:
            await box.exec(["find", *(f"./{path}" for path in taken), "!", "-path", "./.", "-delete"])
        try:
            await box.restore(artifacts)
        except OSError as error:
            raise UnfitArtifactsError(f"patch: what the agent left cannot be put into a box, {error}") from error
        await self._git(context, box, [*git, "read-tree", tree])  # forgets times: a second hides a change of equal size
        await self._git(context, box, [*git, "add", "--update"])
        await self._git(context, box, [*git, "add", "--all"])  # what .gitignore names is no change
        patch = await self._git(context, box, [*git, *_DIFF, tree])
        await box.close()
        return patch

    async def _apply(self, context: ScoringContext, patch: bytes) -> "_Context":
        """Return what the other scorer sees.

        Raises: UnfitArtifactsError: the patch does not apply, or says what none may.
        """
        box = await prepare_box(_Context(context, None, None), spec=self.spec)
        paths: set[str] = set()
        if patch.strip():
            patch = patch.removesuffix(b"\n") + b"\n"  # an answer may have lost its last one
            apply = ["apply", "--whitespace=nowarn"]
            lines = (await self._git(context, box, [*apply, "--numstat", "-z", "-"], patch)).split(b"\0")
            changes = [line.split(b"\t", 2) for line in lines if line]
            if binary := [one[-1].decode(errors="replace") for one in changes if one[0] == b"-"]:
                raise UnfitArtifactsError(f"patch: it changes the binary file {binary[0]}; a patch is text")
            paths = {one[-1].decode("utf-8", "surrogateescape") for one in changes}
            summary = await self._git(context, box, [*apply, "--summary", "-"], patch)
            if _SUBMODULE.search(summary.decode(errors="replace")):
                raise UnfitArtifactsError("patch: it adds another repository as a submodule; a patch is files")
            await self._git(context, box, [*apply, "-"], patch)
        try:
            snapshot = await box.snapshot()
        except OSError as error:
            raise UnfitArtifactsError(f"patch: its files cannot be taken, {error}") from error
        await box.close()
        if link := _find_way_out(snapshot, paths):
            raise UnfitArtifactsError(f"patch: the link {link} leads out of the tree")
        return _Context(context, None if self.submission == "answer" else context.result, snapshot)

    async def _git(self, context: ScoringContext, box: Sandbox, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        """Return the output of git. Raises: UnfitArtifactsError: it failed. BadInputError: there is none."""
        seconds = allow_seconds(context, self.seconds)
        ended = await box.exec(["git", *arguments], stdin=stdin, env=_VARIABLES, seconds=seconds, max_output=MAX_PATCH)
        if ended.exit_code == _NOT_FOUND:
            raise BadInputError(
                f"task {context.task.id!r}: the box has no git, which patches need; add it to the image"
            )
        if ended.exit_code != 0:
            raise UnfitArtifactsError(f"patch: it does not apply, {_explain(ended)}")
        return ended.stdout


class _Context:
    """An attempt with the patched files in place of what its agent left. Contract: ``ScoringContext``."""

    def __init__(self, context: ScoringContext, result: object, artifacts: Snapshot | None) -> None:
        files = context.task.files
        if artifacts is not None:  # it has all files of the start, but for those that the patch removed
            files = {path: text for path, text in files.items() if path.startswith("/")}
        self.task = msgspec.structs.replace(context.task, files=files)
        self.trajectory = context.trajectory
        self.result = result
        self.artifacts = artifacts
        self._context = context

    async def sandbox(self, spec: SandboxSpec | None = None) -> Sandbox:
        return await self._context.sandbox(spec)

    async def ask(self, messages: Sequence[JsonObject], **sampling: object) -> str:
        return await self._context.ask(messages, **sampling)


def _find_way_out(snapshot: Snapshot, paths: set[str]) -> str | None:
    """Return the first link among these paths that leads, or could lead, out of the tree."""
    with tarfile.open(fileobj=io.BytesIO(snapshot.archive)) as archive:
        for member in archive:
            name = str(PurePosixPath(member.name))
            if member.issym() and name in paths and _leads_out(name, member.linkname):
                return name
    return None


def _leads_out(name: str, target: str) -> bool:
    """Whether a link is absolute, climbs above the tree, or climbs behind another name, which may be a link itself."""
    parts = PurePosixPath(target).parts
    climbs = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or ".." in parts[climbs:] or climbs > len(PurePosixPath(name).parts) - 1


def _explain(ended: ExecResult) -> str:
    text = ended.stderr.decode(errors="replace").strip()
    return (
        (text[-_MAX_SHOWN_LENGTH:] or f"git ended with {ended.status}")
        if ended.status == "exited"
        else (f"git ended with {ended.status}")
    )
