"""Faces: the lists that users import from are held here, and every name loads."""

import runpy
from importlib import import_module
from pathlib import Path

import pytest

from agent_layer.lazy import face

ROOT = Path(__file__).parents[3]
FACES = {
    package: {**found.public, **found.internal}
    for package, found in runpy.run_path(str(ROOT / ".ci" / "write_faces.py"))["list_faces"]().items()
}
"""Package, name, and the module that defines it."""

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
    "envs.harnesses": ("Harness", "SideCall", "ToolShape"),
    "envs.grading": (
        *("Answer", "Call", "Case", "Criterion", "GroupScorer", "HiddenTests", "JudgeScorer", "PatchScorer"),
        *("ProgramScorer", "Ranking", "RepositoryTests", "Rubric"),
        *("Scorer", "ScoringContext", "ValueScorer", "Verdict", "call_functions", "common_answers", "common_cheats"),
        *("equal_values", "final_answer", "prepare_box"),
    ),
    "envs.tasksets": ("Script", "TaskSet", "list_taskset_names", "open_taskset"),
    "envs.tasksets.harbor": ("HarborTasks", "SeparateVerifier", "SharedVerifier", "Terminal", "nothing", "oracle"),
    "envs.tasksets.repair": (
        *("Repair", "RepairEnvironment", "RepairScorer", "independent", "near_miss", "reference"),
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
        *("CreditedValue", "JudgedRollout", "JudgedValues", "LossTokens"),
        *("TrainingSample", "group_advantages", "load_config", "samples_of", "train"),
    ),
}


@pytest.mark.parametrize("package", PUBLIC)
def test_a_public_face_offers_these_names_and_no_others(package: str):
    room = import_module(package)

    assert sorted(room.__all__) == sorted(PUBLIC[package])
    assert [name for name in room.__all__ if getattr(room, name, None) is None] == []


def test_every_name_of_a_face_loads():
    missing = []
    for package, homes in FACES.items():
        if package in ("trainer_adapter.verl", "trainer_adapter.loop"):
            continue  # torch and veRL take seconds; their own tests import them
        room = import_module(package)
        names = [name for name, home in homes.items() if home != "envs.placement.ray"]  # imports Ray
        missing += [f"{package}.{name}" for name in names if not hasattr(room, name)]

    assert missing == []


def test_no_name_of_a_face_is_also_a_module_there():
    """Importing such a module would put it in the place of what the face means."""
    hidden = {}
    for package, homes in FACES.items():
        modules = {
            one.stem for one in ROOT.joinpath(*package.split(".")).iterdir() if one.suffix == ".py" or one.is_dir()
        }
        names = {name for name, home in homes.items() if home != f"{package}.{name}"}
        if names & modules:
            hidden[package] = names & modules

    assert hidden == {}


def test_a_name_that_is_not_listed_is_refused():
    load, _ = face("room", {})

    with pytest.raises(AttributeError, match="module 'room' has no attribute 'Typo'"):
        load("Typo")
