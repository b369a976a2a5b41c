"""A whole job on one machine as processes: engine, gateway, worker and trainer.

A URL in the settings wins: an engine or gateway that runs elsewhere is used, not started. No process outlives the
caller.
"""

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from agent_layer.engines import ADAPTER_FILE, newest_policy, remove_ended_engines
from agent_layer.errors import AgentLayerError
from agent_layer.infra import ORPHAN_SECONDS, Keys, SupervisedProcess, hold_alone, open_redis, start_supervised
from agent_layer.local import VllmServer, run_page, run_stack
from agent_layer.settings import Settings
from agent_layer.view import make_link
from trainer_adapter.config import TrainConfig, write_config

_LOOK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to train, and with how much of this machine."""

    config: TrainConfig
    target: str = ""
    """``module:attribute`` of the agent, as ``agent-layer work`` takes it."""
    command: Sequence[str] = ()
    """Options and words behind ``agent-layer work`` in place of the target; empty: the agent is no command."""
    slots: int = 16
    """Rollouts at a time."""
    max_model_len: int | None = None
    unchecked: bool = False
    """Whether tasks of a set train that failed ``tasksets check``, or never ran it."""
    on_ray: bool = False
    """Whether veRL trains on Ray, with vLLM servers of its own."""
    num_processes: int = 1
    """Processes that share the model; on Ray the configuration says it."""


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """The processes of a job."""

    settings: Settings
    """Settings with the addresses of the started processes."""
    trainer: SupervisedProcess
    processes: dict[str, SupervisedProcess]
    """Started processes by name, the trainer included."""

    def wait(self, look: Callable[[], None] = lambda: None) -> None:
        """Wait until the trainer has finished.

        Args:
            look: called several times a second, and once after the end.

        Raises: AgentLayerError: a process ended early; the message names its log.
        """
        while self.trainer.is_running:
            look()
            for name, process in self.processes.items():
                if name != "trainer" and not process.is_running:
                    raise AgentLayerError(
                        f"{name}: expected it to run until the trainer ends, but it has ended; see {process.log}, which"
                        f" ends: {process.log_tail}"
                    )
            time.sleep(_LOOK_SECONDS)
        look()
        if status := self.trainer.process.returncode:
            raise AgentLayerError(
                f"trainer: expected it to finish, but it ended with status {status}; see {self.trainer.log}, which"
                f" ends: {self.trainer.log_tail}"
            )


@contextmanager
def run_job(
    settings: Settings, job: Job, report_phase: Callable[[str], None] = lambda _: None
) -> Generator[RunningJob]:
    """Context manager: run a job. At the end the trainer stops first, so that it makes its checkpoint.

    Args:
        settings: locations; ``settings.run`` is the run.
        job: what to run.
        report_phase: receives a description of what the call waits for, several times a second.

    Raises:
        BadInputError: the run has a job already.
        EngineError, UnreachableError: a process does not start.
    """
    logs = settings.dir.absolute() / "logs"
    config = settings.dir / "runs" / settings.run / "train.json"
    with ExitStack() as cleanup:
        refusal = (
            f"run {settings.run}: expected no other job of it in {settings.dir}, found one; stop it, or choose another"
            " run. If a worker of that job says this, its module starts a job when it is imported: move the call of"
            " train below 'if __name__ == \"__main__\":'"
        )
        cleanup.enter_context(hold_alone(config.with_name("job.lock"), refusal))
        write_config(job.config, config)
        report_phase("Redis is starting")
        redis = cleanup.enter_context(open_redis(settings))
        if not settings.gateway_url:
            remove_ended_engines(settings, redis)  # before the trainer looks for engines
        options = ["--unchecked"] * job.unchecked + ["--on", "ray"] * job.on_ray
        options += [f"--processes={job.num_processes}"] * (job.num_processes > 1)
        trainer = _start(["train", str(config), "--no-view", *options], settings, logs / "trainer.log")
        cleanup.callback(trainer.stop)
        processes = {"trainer": trainer}
        if not settings.gateway_url:
            engine = None if job.on_ray else _engine(settings, redis, job)
            stack = cleanup.enter_context(run_stack(settings, engine, report_phase=report_phase))
            settings, processes = stack.settings, processes | stack.processes
        work = ["work", "--slots", str(job.slots), *(job.command or [job.target])]
        processes["worker"] = _start(work, settings, logs / "worker.log", ORPHAN_SECONDS)
        cleanup.callback(processes["worker"].stop)
        cleanup.callback(trainer.stop)
        yield RunningJob(settings=settings, trainer=trainer, processes=processes)


@contextmanager
def open_page(settings: Settings, run: str, say: Callable[[str], None]) -> Generator[None]:
    """Have a page during the block, and report its link to the run."""
    with run_page(settings.model_copy(update={"run": run}), say) as address:
        if address is not None:
            say(f"view: {make_link(address, 'run', run)}")
        yield


def _start(
    arguments: list[str], settings: Settings, log: Path, orphan_seconds: float | None = None
) -> SupervisedProcess:
    variables = settings.environment() | {"PYTHONWARNINGS": "ignore", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [sys.executable, "-m", "agent_layer.cli", *arguments]
    return start_supervised(command, variables, log, orphan_seconds=orphan_seconds)


def _engine(settings: Settings, redis: Redis, job: Job) -> VllmServer | str:
    """Return the address of a running engine, or a server to start with the newest weights of the run."""
    if settings.engine_urls:
        return settings.engine_urls[0]
    newest = newest_policy(redis, Keys(settings.namespace), settings.run)
    model, lora = job.config.model, job.config.lora
    has_adapters = lora is not None and lora.publish == "adapter"
    if newest and not has_adapters and _is_model(Path(newest.location)):
        model = Path(newest.location)
    return VllmServer(
        model=model.absolute(),
        log=settings.dir.absolute() / "logs" / "vllm.log",
        max_model_len=job.max_model_len,
        start_seconds=settings.engine_seconds,
        lora_rank=lora.rank if lora and has_adapters else None,
        tool_parser=job.config.tool_parser,
        reasoning_parser=job.config.reasoning_parser,
    )


def _is_model(directory: Path) -> bool:
    return directory.is_dir() and not (directory / ADAPTER_FILE).is_file()
