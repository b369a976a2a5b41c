"""A harness as an agent of a worker: a command with directories of its own for each attempt."""

from typing import Final

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.schema.sandbox import check_spec
from agent_layer.settings import Settings
from envs.commands import (
    CommandEnd,
    CommandOptions,
    CommandPlace,
    CommandPlan,
    CommandTarget,
    TaskDefaults,
    choose_box,
    make_box_spec,
)
from envs.harnesses.harness import Harness
from envs.harnesses.install import Installation
from envs.harnesses.registry import find_harness

PREFIX: Final = "harness:"
"""Begins the name of an agent that is a harness."""
DIFF: Final = "changes.patch"
"""Artifact with what changed in the working directory."""
_MAX_ERROR_LENGTH = 2000


def make_harness_target(settings: Settings, harness: Harness, options: CommandOptions) -> CommandTarget:
    """Return what runs an installed harness: its last message is the result, its changes are the artifact ``DIFF``.

    Args:
        settings: name the directory that it is installed in.
        harness: the declaration.
        options: what holds for all attempts. A box sees its installation and its interpreter, too.

    Raises:
        BadInputError: it is not installed at its pinned version, attempts are to share a HOME, those in a sandbox are
            to leave their directories, or no sandbox that can show it works on this machine.
    """
    if options.is_shared:
        raise BadInputError(
            f"harness {harness.name!r}: expected no --share-workdir, since its configuration needs a HOME for each"
            " attempt; leave that option out"
        )
    installation = Installation(settings, harness)
    program = installation.require_program()
    if options.diff is None:
        options = msgspec.structs.replace(options, diff=DIFF)
    if options.box is None and not options.is_unboxed:
        options = msgspec.structs.replace(options, box=make_box_spec())
    if (box := options.box) is not None:
        if options.keep is not None:
            raise BadInputError(
                f"harness {harness.name!r}: expected no --keep-workdir beside a sandbox, whose files end with it; name"
                " what to keep with --artifact, or add --box none"
            )
        mounts = [*box.mounts, *installation.list_mounts()]
        try:
            box = check_spec(msgspec.structs.replace(box, mounts=mounts))
        except BadInputError as error:
            raise BadInputError(
                f"harness {harness.name!r}: no sandbox can show its installation, {error}; set AGENT_LAYER_DIR to a"
                " directory elsewhere, and install it there, or add --box none: it has this user's rights then"
            ) from error
        options = choose_box(msgspec.structs.replace(options, box=box))

    def plan(place: CommandPlace) -> CommandPlan:
        return harness.make_plan(program, place)

    return CommandTarget(plan, options, read_answer, TaskDefaults(sampling=harness.sampling, limits=harness.limits))


def check_harness(settings: Settings, agent: object, options: CommandOptions | None) -> None:
    """Check that an agent can run here, if it is a harness.

    Raises: BadInputError: as ``make_harness_target``; or no harness has this name.
    """
    if isinstance(agent, str) and agent.startswith(PREFIX):
        make_harness_target(settings, find_harness(agent.removeprefix(PREFIX)), options or CommandOptions())


def read_answer(end: CommandEnd) -> str:
    """Return the last message of an agent that has ended.

    Raises: AgentFailedError: its exit status is not 0.
    """
    if end.exit_code == 0:
        return end.stdout.strip()
    status = f"status {end.exit_code}" if end.exit_code is not None else f"signal {end.signal}"
    tail = (end.stderr or end.stdout)[-_MAX_ERROR_LENGTH:].strip()
    raise AgentFailedError(f"harness {end.name!r}: ended with {status}: {tail}")
