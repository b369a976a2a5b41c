"""Dry run of a training configuration: what it amounts to, the memory it needs, and what is missing to start it.

Nothing is started, also no Redis, and nothing is written into the run's directory.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from agent_layer.dispatcher import Dispatcher
from agent_layer.engines import EngineRegistry
from agent_layer.errors import AgentLayerError, BadInputError
from agent_layer.health import STEP_CHECKS, StepCheck, set_limits
from agent_layer.infra import Keys, install_command, is_locked, is_redis_running, open_redis
from agent_layer.settings import Settings
from envs.commands import CommandOptions
from envs.harnesses import PREFIX, check_harness, find_harness, find_qualification
from envs.tasksets import check_judges, check_trainable
from trainer_adapter.algorithms import resolve_algorithm
from trainer_adapter.config import ClusterConfig, TrainConfig
from trainer_adapter.data import check_own_parts
from trainer_adapter.loop import CheckpointDirectory, refuse_changes
from trainer_adapter.model_sizes import check_model, check_sequence_parallel, read_context_length
from trainer_adapter.start.memory import MemoryEstimate, MemoryPart, estimate_memory, read_shape
from trainer_adapter.start.options import flatten_options
from trainer_adapter.tasks import read_held_out_sets
from trainer_adapter.teacher import open_teacher

_PACKAGES = ("torch", "verl", "transformers", "tensordict", "safetensors")
_WEIGHTS = ("*.safetensors", "*.bin")
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would be."""

    options: dict[str, str]
    """Every option by its dotted name, defaults and the algorithm's own in place."""
    memory: MemoryEstimate | None
    """None: not known; ``missing`` has the reason."""
    missing: list[str]
    """Why the run cannot start, a sentence each."""
    gpus: list[str] = []
    """Lines about the GPUs of a run on Ray."""


class HarnessWorker(NamedTuple):
    """A worker that runs a coding agent."""

    agent: str
    """``harness:NAME``."""
    options: CommandOptions


def plan_run(
    config: TrainConfig,
    settings: Settings,
    *,
    unchecked: bool = False,
    on_ray: bool = False,
    num_ranks: int = 1,
    worker: HarnessWorker | None = None,
) -> DryRun:
    """Look at everything that a run needs.

    Args:
        config: of the run.
        settings: where its gateway, engine and workers meet.
        unchecked: whether task sets may train whose gate never passed.
        on_ray: whether veRL runs on Ray, and starts its own engines.
        num_ranks: processes that share the model; on Ray the configuration says it.
        worker: what the run starts itself, with an engine and a gateway; None: these run already.
    """
    settings = settings.model_copy(update={"run": config.run or settings.run})
    num_tasks, agents, missing = _look_at_tasks(config, settings, unchecked=unchecked)
    model, packages = _look_at_model(config.model), _look_at_packages(config)
    missing = [*model, *missing, *_look_at_held_out(config, settings.run), *_look_at_own_parts(config), *packages]
    missing += _look_at_teacher(config, settings) if not packages else []
    missing += _look_at_harness(settings, worker) if worker else []
    starts_stack = worker is not None and not settings.gateway_url
    found = _look_at_services(settings, needs_engine=not on_ray and not starts_stack, needs_worker=worker is None)
    missing += [*found.missing, *([] if model or packages else _look_inside(config, settings))]
    missing += _look_at_names(agents - found.agents)
    agents |= {worker.agent} if worker else found.agents
    length = None if starts_stack or on_ray else found.max_model_len
    for agent in sorted(agents):
        if agent.startswith(PREFIX):
            missing += find_short_lengths(config, settings, agent.removeprefix(PREFIX), length)
    memory = ray = None
    try:
        if on_ray:
            cluster = config.cluster or ClusterConfig()
            num_ranks = cluster.gpus_per_node * cluster.nodes
        check_sequence_parallel(config, num_ranks)
        memory = estimate_memory(config, read_shape(config.model), num_ranks=num_ranks)
    except BadInputError as error:
        if (config.model / "config.json").is_file():
            missing.append(str(error))
    if on_ray and memory:  # veRL sends weights in parts, see the plan of its GPUs
        memory = msgspec.structs.replace(memory, publication=[])
    if on_ray and memory and num_tasks and not packages:
        from trainer_adapter.start.ray_plan import plan_on_ray  # noqa: PLC0415  # torch and veRL take seconds

        ray = plan_on_ray(config, settings)
    return DryRun(
        options=_resolve(config, settings, num_tasks) | (ray.options if ray else {}),
        memory=memory,
        missing=missing + (ray.missing if ray else []),
        gpus=ray.gpus if ray else [],
    )


def write_plan(plan: DryRun) -> Iterator[str]:
    """Yield the lines of a plan."""
    width = max(map(len, plan.options))
    yield from (f"{name:<{width}}  {value}" for name, value in plan.options.items())
    if memory := plan.memory:
        peak = f"{memory.peak_bytes / 1e6:,.1f} MB"
        yield ""
        yield f"memory: {peak} at most, {memory.shape.num_parameters:,} parameters; a micro-batch that is full"
        for title, parts in (("always", memory.states), ("update", memory.update), ("version", memory.publication)):
            yield from (_part_line(title, part) for part in parts)
    if plan.gpus:
        yield ""
        yield from plan.gpus
    yield ""
    yield from (f"missing: {sentence}" for sentence in plan.missing)
    if not plan.missing:
        yield "nothing is missing: without --dry-run this would start"


def _part_line(title: str, part: MemoryPart) -> str:
    return f"  {title:<8}{part.num_bytes / 1e6:>10,.1f} MB  {part.name} = {part.arithmetic}"


def _resolve(config: TrainConfig, settings: Settings, num_tasks: int | None) -> dict[str, str]:
    algorithm = resolve_algorithm(config.algorithm)
    written = msgspec.to_builtins(config, enc_hook=str, builtin_types=(Path,))
    options: dict[str, object] = {**written, "run": settings.run, "algorithm": msgspec.to_builtins(algorithm)}
    del options["health"]
    options["alarms"] = f"{len(config.alarms)} addresses" if config.alarms else "AGENT_LAYER_ALARM_URLS"
    if config.rollouts.groups_per_step is None and num_tasks is not None:
        options["rollouts"] = {**written["rollouts"], "groups_per_step": f"{num_tasks}, one of each task"}
    limits = {entry.name: entry for entry in set_limits(config.health)}
    changed = [one for one in STEP_CHECKS if limits.get(one.name) != one]
    options["health"] = {one.name: _limits(limits.get(one.name)) for one in changed} or "as in the catalogue"
    return {name: "-" if value is None else str(value) for name, value in flatten_options(options)}


def _limits(entry: StepCheck | None) -> str:
    return "off" if entry is None else f"warn {entry.warn}, stop {entry.stop}, steps {entry.steps}"


def _look_at_model(model: Path) -> list[str]:
    remedy = "download the model, or correct 'model'"
    if not model.is_dir():
        return [f"model {model}: expected a directory in Hugging Face's form, found none; {remedy}"]
    missing: list[str] = []
    if not (model / "config.json").is_file():
        missing.append(f"model {model}: expected config.json, found none; {remedy}")
    if not any(next(model.glob(pattern), None) for pattern in _WEIGHTS):
        missing.append(f"model {model}: expected weights ({' or '.join(_WEIGHTS)}), found none; {remedy}")
    if not any((model / name).is_file() for name in _TOKENIZER):
        missing.append(f"model {model}: expected a tokenizer ({' or '.join(_TOKENIZER)}), found none; {remedy}")
    return missing


def _look_inside(config: TrainConfig, settings: Settings) -> list[str]:
    newest = CheckpointDirectory(settings, settings.run).newest()
    try:
        check_model(config.model)
        if newest:
            refuse_changes(config, newest[0], settings.run)
    except BadInputError as error:
        return [str(error)]
    return []


def _look_at_tasks(
    config: TrainConfig, settings: Settings, *, unchecked: bool
) -> tuple[int | None, set[str], list[str]]:
    """Return the number of tasks, the agents that they name, and what is wrong with them."""
    try:
        from trainer_adapter.tasks import open_sources  # noqa: PLC0415  # numpy comes with torch

        with TemporaryDirectory() as directory:
            sources = open_sources(config.tasks, Path(directory), run=settings.run, seed=config.seed)
            files = [source.file(source.first_level) for source in sources]
            agents = set[str]().union(*(file.agents for file in files))
            tasks = [task for source in sources for task in source.read_first_tasks()]
            if not unchecked:
                check_trainable(settings.dir, tasks, (source.file_set for source in sources))
            if not config.accept_shared_judge:
                check_judges(tasks)
    except ModuleNotFoundError:
        return None, set(), []  # the packages that are missing are named anyway
    except (AgentLayerError, OSError) as error:
        return None, set(), [str(error)]
    return sum(map(len, files)), agents, []


def _look_at_harness(settings: Settings, worker: HarnessWorker) -> list[str]:
    try:
        check_harness(settings, worker.agent, worker.options)
    except BadInputError as error:
        return [str(error)]
    return []


def _look_at_names(agents: set[str]) -> list[str]:
    """Return which harnesses that tasks name are none here, and run in no worker."""
    missing: list[str] = []
    for agent in sorted(agents):
        try:
            if agent.startswith(PREFIX):
                find_harness(agent.removeprefix(PREFIX))
        except BadInputError as error:
            missing.append(str(error))
    return missing


def find_short_lengths(config: TrainConfig, settings: Settings, name: str, max_model_len: int | None) -> list[str]:
    """Return which lengths of a run are shorter than a harness was found to need.

    Args:
        config: of the run.
        settings: name the directory with results of checks.
        name: of the harness.
        max_model_len: of the engine; None: it starts with the run.
    """
    result = find_qualification(settings, name)
    if result is None or (needs := result.needs) is None:
        return []
    missing: list[str] = []
    try:
        longest = max_model_len or read_context_length(config)
    except BadInputError:  # named where it is needed
        longest = needs.max_model_len
    if longest < needs.max_model_len:
        missing.append(
            f"harness {name!r}: its first request and one answer need an engine with max_model_len"
            f" {needs.max_model_len:,}, found {longest:,}; start the engine with more (cluster.max_model_len on Ray),"
            " with a model that has it"
        )
    row = config.optimizer.max_row_tokens
    if row is not None and row < needs.max_row_tokens:
        missing.append(
            f"harness {name!r}: rows of its short rollouts have up to {needs.max_row_tokens:,} tokens, found"
            f" optimizer.max_row_tokens {row:,}, with which nothing of them is trained whole; set that to"
            f" {needs.max_row_tokens} or more, or leave it out"
        )
    return missing


def _look_at_held_out(config: TrainConfig, run: str) -> list[str]:
    try:
        read_held_out_sets(config.held_out_sets, run=run)
    except AgentLayerError as error:
        return [str(error)]
    return []


def _look_at_own_parts(config: TrainConfig) -> list[str]:
    try:
        check_own_parts(resolve_algorithm(config.algorithm))
    except BadInputError as error:
        return [str(error)]
    return []


def _look_at_packages(config: TrainConfig) -> list[str]:
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        found = f"expected torch and veRL, found no {', '.join(missing)}"
        return [f"packages: {found}; install torch first, then: {install_command('train')}"]
    from trainer_adapter.losses import check_named_loss  # noqa: PLC0415  # torch and veRL take seconds
    from trainer_adapter.verl import check_verl_options  # noqa: PLC0415

    algorithm = resolve_algorithm(config.algorithm)
    try:
        check_verl_options(config.verl)
        check_named_loss(algorithm.loss, algorithm.loss_options, has_reference=algorithm.kl > 0)
    except BadInputError as error:
        return [str(error)]
    return []


def _look_at_teacher(config: TrainConfig, settings: Settings) -> list[str]:
    try:
        open_teacher(config, settings)
    except AgentLayerError as error:
        return [str(error)]
    return []


class _Services(NamedTuple):
    """What runs already."""

    missing: list[str]
    """What is wrong with Redis, engines, workers, and other trainers of the run."""
    agents: set[str] = set()
    """Those of workers."""
    max_model_len: int | None = None
    """Least length of the run's engines; None: not known."""


def _look_at_services(settings: Settings, *, needs_engine: bool, needs_worker: bool) -> _Services:
    engine = "engine: expected one that serves run {!r}, found {}; start one with 'agent-layer up'"
    worker = "worker: expected one that plays rollouts, found none; start one with 'agent-layer work TARGET'"
    missing: list[str] = []
    if (settings.dir / "runs" / settings.run).is_dir() and is_locked(
        settings.dir / "runs" / settings.run / "trainer.lock"
    ):
        missing.append(f"run {settings.run}: another trainer runs; stop it, or choose another run")
    if not settings.redis_url and not is_redis_running(settings):
        return _Services([*missing, *[engine.format(settings.run, "none")] * needs_engine, *[worker] * needs_worker])
    try:
        with open_redis(settings) as redis:
            registry = EngineRegistry(redis, Keys(settings.namespace))
            engines = registry.engines()
            controls = [registry.control(one.url) for one in engines if one.run == settings.run]
            own = [one for one in controls if one.is_healthy()]
            lengths = [length for one in own if (length := one.read_context_tokens()) is not None]
            workers = Dispatcher(redis, settings).workers()
    except AgentLayerError as error:
        return _Services([*missing, str(error)])
    if not own and needs_engine:
        others = ", ".join(f"{one.url} of run {one.run!r}" for one in engines) or "none"
        missing.append(engine.format(settings.run, others))
    live = [one for one in workers if one.silent_seconds <= settings.lease_seconds and not one.is_draining]
    if not live and needs_worker:
        missing.append(worker)
    return _Services(missing, {str(one.about.get("agent", "")) for one in live}, min(lengths, default=None))
