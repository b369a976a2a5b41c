"""Command ``verify-cluster``."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.infra import install_command, make_private, replace_file
from trainer_adapter.evidence.collect import Place, collect
from trainer_adapter.evidence.page import write_evidence
from trainer_adapter.evidence.records import Buckets, Fault


def verify_cluster(  # noqa: PLR0913  # options of a command are its arguments
    *,
    out: Annotated[Path, typer.Option(help="Directory for page, figures and logs.")] = Path("verify-cluster"),
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Tiny models on the CPU: does it run here?")] = False,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of this machine to use; all without it.")] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Limit; what is not measured by then stays out.")] = 30.0,
    machines: Annotated[int, typer.Option(min=1, help="Machines that share the model; run it on each.")] = 1,
    machine: Annotated[int, typer.Option(min=0, help="Number of this machine; 0 writes the page.")] = 0,
    address: Annotated[str, typer.Option(help="HOST:PORT of machine 0; the three ports after it, too.")] = "",
) -> None:
    """Measure what the GPUs of this machine do with updates, and write a page beside what the dry run expects.

    Models of 0.5B and 1.5B, and adapters of 7B, with random weights: nothing is downloaded, no data leaves the machine.
    Speed, memory and MFU of rows of 1 k to 64 k tokens; log-probabilities of trainer and engine in bfloat16; weights
    on their way to an engine. OUT/page.md and OUT/figures.json are what to send back. Exit 1 if something could not be
    measured, or weights did not arrive as they were sent.

        agent-layer verify-cluster
        agent-layer verify-cluster --machines 2 --machine 0 --address 10.0.0.5:29400     # and --machine 1 on the other
        agent-layer verify-cluster --rehearse                                            # without a GPU
    """
    if missing := [name for name in ("torch", "verl") if find_spec(name) is None]:
        raise BadInputError(
            f"verify-cluster: expected torch and veRL, found no {' and no '.join(missing)}; install torch first, then:"
            f" {install_command('train')}"
        )
    if machines > 1 and (not address.rpartition(":")[2].isdigit() or machine >= machines):
        raise BadInputError(
            f"verify-cluster: expected --address HOST:PORT of the first of {machines} machines and a --machine below"
            f" {machines}, found {address or 'none'!r} and {machine}; give the same address on each"
        )
    place = Place(_count_processes(gpus, rehearse=rehearse), machines, machine, address)
    evidence = collect(place, out.absolute(), minutes * 60, partial(typer.echo, err=True), is_rehearsal=rehearse)
    if machine > 0:
        typer.echo("the page is on machine 0")
        return
    make_private(out)
    replace_file(out / "figures.json", msgspec.json.format(msgspec.json.encode(evidence)), private=False)
    replace_file(out / "page.md", write_evidence(evidence).encode(), private=False)
    typer.echo(f"{out / 'page.md'} and {out / 'figures.json'}: send both back")
    faults = [f"{one.what}: {one.why}" for one in evidence.found if isinstance(one, Fault)]
    faults += [
        f"{one.case}: weights changed" for one in evidence.found if isinstance(one, Buckets) and not one.is_equal
    ]
    if faults:
        raise AgentFailedError(f"verify-cluster: expected all figures, found {len(faults)} faults; {'; '.join(faults)}")


def _count_processes(gpus: int | None, *, rehearse: bool) -> int:
    if rehearse:
        return gpus or 1
    import torch  # noqa: PLC0415  # it takes seconds

    if found := torch.cuda.device_count():
        return min(gpus or found, found)
    raise BadInputError(
        "verify-cluster: expected a GPU, found none by torch; with --rehearse all of it runs on the CPU with tiny"
        " models: that shows that it runs, and that weights arrive as they were sent"
    )
