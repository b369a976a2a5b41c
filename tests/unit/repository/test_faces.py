"""Faces: the lists that users import from are held here, and every face lists the same names for both readers."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

from agent_layer.lazy import lazy_exports

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent_layer", "tracer", "trainer_adapter", "envs")
FACES = sorted(
    path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py") if "lazy_exports" in path.read_text()
)

PUBLIC = {
    "agent_layer.schema": (
        *("Action", "Group", "Limits", "Logprobs", "Observation", "Outcome", "PolicyRun", "PolicyVersion", "Reward"),
        *("RewardSpec", "Step", "StepState", "Task", "TaskView", "TokenIds", "TrainedBatch", "TrainingSample"),
        "Trajectory",
    ),
    "agent_layer.store": ("Filters", "GroupDelivery", "Page", "Store", "TrajectoryRow", "open_store"),
    "agent_layer.dispatcher": (
        *("Dispatcher", "GroupState", "QueueStats", "RolloutState", "RunState", "WorkerState"),
        *("check_task", "connect", "parse_tasks", "read_tasks"),
    ),
    "tracer": (
        *("Rollout", "agent", "current", "enter_rollout", "extract", "flush", "init", "inject", "instrument"),
        *("reward", "rollout", "state", "step", "testing", "tool"),
    ),
    "envs": (
        *("EnvContext", "Environment", "Rollout", "Scorer", "ScoringContext", "StepResult", "Task", "ToolCalls"),
        *("ToolDefinition", "ToolEnvironment", "ToolResult", "Trajectory", "Verdict", "make_context", "resumable"),
    ),
    "envs.sandbox": (
        *("Entry", "ExecResult", "ExecStatus", "Isolation", "PoolOptions", "PoolStats", "Process", "Resources"),
        *("Sandbox", "SandboxConnection", "SandboxKind", "SandboxPool", "SandboxSpec", "Snapshot", "Support"),
        *("connect_sandbox", "open_pool"),
    ),
    "envs.tools": (
        *("FunctionTool", "Tool", "ToolDefinition", "ToolError", "ToolResult", "calculator", "edit_file"),
        *("list_files", "python", "read_file", "shell", "tool", "write_file"),
    ),
    "trainer_adapter": (
        *(
            "AlgorithmConfig",
            "EvaluationConfig",
            "HeldOutConfig",
            "LoraConfig",
            "OptimizerConfig",
            "RetentionConfig",
            "RolloutConfig",
            "Schedule",
            "SourceConfig",
            "TrainConfig",
        ),
        *("TrainingSample", "group_advantages", "load_config", "samples_of", "train"),
    ),
}


@pytest.mark.parametrize("package", PUBLIC)
def test_a_public_face_offers_these_names_and_no_others(package: str):
    face = import_module(package)

    assert sorted(face.__all__) == sorted(PUBLIC[package])
    assert [name for name in face.__all__ if getattr(face, name, None) is None] == []


def test_what_type_checkers_read_is_what_loads():
    differing = {}
    for path in FACES:
        typed, loaded = _typed_names(path), _loaded_names(path)
        if typed != loaded:
            differing[str(path.relative_to(ROOT))] = typed ^ loaded

    assert differing == {}


def test_every_name_of_a_face_loads():
    missing = []
    for path in FACES:
        package = ".".join(path.parent.relative_to(ROOT).parts)
        if package.startswith(("trainer_adapter.verl", "trainer_adapter.loop")):
            continue  # torch and veRL take seconds; their own tests import them
        face = import_module(package)
        names = [name for home, name in _loaded_names(path) if home != "envs.placement.ray"]  # imports Ray
        missing += [f"{package}.{name}" for name in names if not hasattr(face, name)]

    assert missing == []


def test_no_name_of_a_face_is_also_a_module_there():
    """Importing such a module would put it in the place of what the face means."""
    hidden = {}
    for path in FACES:
        modules = {one.stem for one in path.parent.iterdir() if one.suffix == ".py" or one.is_dir()}
        names = {name for home, name in _loaded_names(path) if home != ".".join(path.parent.relative_to(ROOT).parts)}
        if names & modules:
            hidden[str(path.relative_to(ROOT))] = names & modules

    assert hidden == {}


def test_a_name_that_is_not_listed_is_refused():
    with pytest.raises(AttributeError, match="module 'room' has no attribute 'Typo'"):
        lazy_exports("room", {})("Typo")


def _typed_names(path: Path) -> set[tuple[str, str]]:
    imports = [node for node in ast.walk(_branches(path)[0]) if isinstance(node, ast.ImportFrom)]
    return {(node.module or "", name.asname or name.name) for node in imports for name in node.names}


def _loaded_names(path: Path) -> set[tuple[str, str]]:
    homes = ast.literal_eval(_branches(path)[1].args[1])
    return {(home, name) for home, names in homes.items() for name in names}


def _branches(path: Path) -> tuple[ast.Module, ast.Call]:
    """What type checkers read, and the call that makes ``__getattr__``."""
    (found,) = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
    (assignment,) = found.orelse
    assert isinstance(assignment, ast.Assign)
    assert isinstance(assignment.value, ast.Call)
    return ast.Module(found.body, []), assignment.value
