"""The table of our commands: ``agent-layer --help`` prints it and imports none of them.

A new command is one line here and one function. A test compares each summary with the docstring of the function.
"""

from typing import Final, NamedTuple


class Command(NamedTuple):
    """One word of the command line."""

    name: str
    summary: str
    """First paragraph of the docstring."""
    target: str = ""
    """``module:name`` of a function, or of a ``typer.Typer`` that holds one and settings of its parser. Empty: a group
    that does nothing itself."""
    parts: tuple["Command", ...] = ()
    """Commands of a group."""


_QUEUE = "agent_layer.cli.queue"
_QUERY = "agent_layer.cli.query"
_STORE = "agent_layer.cli.store"
_SERVICES = "agent_layer.cli.services"
_SANDBOX = "envs.sandbox.cli"
_HARNESSES = "envs.harnesses.cli"
_TASKSETS = "envs.tasksets.cli"
_SCAFFOLDS = "envs.scaffolds.cli"
_DATASETS = "trainer_adapter.datasets.cli"

PANELS: Final[dict[str, tuple[Command, ...]]] = {
    "Run agents": (
        Command("up", "Run Redis, objects, an engine and the gateway on this machine.", f"{_SERVICES}.up:up"),
        Command(
            "submit", "Queue tasks for workers. Submitting a file twice queues it once.", f"{_QUEUE}.submit:submit"
        ),
        Command(
            "work",
            "Run agents on queued tasks: work TARGET, work --harness NAME, or work -- COMMAND ARGUMENTS... .",
            "envs.cli:app",
        ),
        Command(
            "eval",
            "Evaluate an agent and a model: eval [AGENT] TASKS, or eval TASKS -- COMMAND ARGUMENTS... .",
            "envs.evaluation.cli:app",
        ),
        Command(
            "tasksets",
            "List task sets with their version, their levels and the last check.",
            f"{_TASKSETS}:list_tasksets",
            (
                Command(
                    "write", "Write tasks of a set into a file, one JSON object on each line.", f"{_TASKSETS}:write"
                ),
                Command(
                    "import",
                    "Write Harbor tasks into a file, one JSON object on each line, and build their images.",
                    f"{_TASKSETS}:import_folder",
                ),
                Command(
                    "check",
                    "Check that a task set may train: right solutions score 1, all others 0, and everything is the"
                    " same twice.",
                    f"{_TASKSETS}:check",
                ),
                Command("audit", "Audit any task set: its scorer, leaks, duplicates.", "envs.evaluation.audit:audit"),
            ),
        ),
        Command(
            "harnesses",
            "List coding agents with their pinned version, whether it is installed, and when it was qualified.",
            f"{_HARNESSES}:list_harnesses",
            (
                Command(
                    "install",
                    "Install coding agents at their pinned versions, from locks with hashes, into the directory.",
                    f"{_HARNESSES}:install",
                ),
                Command(
                    "check",
                    "Drive an installed agent through a fixed script, and count what it sampled and what of it is"
                    " trained.",
                    "trainer_adapter.qualification.cli:check",
                ),
            ),
        ),
        Command(
            "trace", "Run a program and record it as one trajectory: trace -- python agent.py … .", "tracer.cli:app"
        ),
        Command(
            "sandbox",
            "Run code that is not trusted: what this machine can isolate, and code in a fresh box.",
            parts=(
                Command(
                    "doctor",
                    "Report which kinds of sandbox work here, what each stops, and why the others do not work.",
                    f"{_SANDBOX}:doctor",
                ),
                Command(
                    "run",
                    "Run a Python file in a fresh box; output and exit status are the file's.",
                    f"{_SANDBOX}:run",
                ),
                Command(
                    "exec",
                    "Run a command in a fresh box: sandbox exec -- COMMAND … . Output and exit status are its.",
                    f"{_SANDBOX}:execute_app",
                ),
            ),
        ),
    ),
    "Watch and steer": (
        Command("tasks", "List tasks of open groups, oldest first, with their rollouts.", f"{_QUEUE}.tasks:tasks"),
        Command(
            "rollouts", "List rollouts of open groups, or with --status all in that status.", f"{_QUEUE}.tasks:rollouts"
        ),
        Command(
            "groups",
            "List open groups, oldest first, with the usable rollouts that each has and needs.",
            f"{_QUEUE}.groups:groups",
            (
                Command("show", "Show these groups, closed ones too.", f"{_QUEUE}.groups:show"),
                Command(
                    "cancel",
                    "Cancel what waits or runs of groups, model calls included; the groups close with what they have.",
                    f"{_QUEUE}.groups:cancel",
                ),
            ),
        ),
        Command(
            "runs",
            "Show what of each run waits, runs, was accepted and failed; runs with work first.",
            f"{_QUEUE}.runs:runs",
            (
                Command(
                    "pause",
                    "Hand out no rollout of a run until it is resumed. Attempts that run continue without --running.",
                    f"{_QUEUE}.runs:pause",
                ),
                Command(
                    "resume", "Hand out rollouts of a run again, and reset its failure rate.", f"{_QUEUE}.runs:resume"
                ),
                Command("share", "Change a run's share beside others of the same priority.", f"{_QUEUE}.runs:share"),
            ),
        ),
        Command(
            "sandboxes",
            "List the sandboxes that this user's workers have taken on this machine, oldest first.",
            f"{_SANDBOX}:list_boxes",
        ),
        Command(
            "workers",
            "List workers seen in the last day, longest silent first.",
            f"{_QUEUE}.workers:workers",
            (
                Command(
                    "drain",
                    "Drain workers: they claim nothing more, and exit when their rollouts have ended.",
                    f"{_QUEUE}.workers:drain",
                ),
            ),
        ),
        Command(
            "dead",
            "List dead letters, newest first: rollouts given up after their last retry, with the last error.",
            f"{_QUEUE}.dead_letters:dead",
            (
                Command(
                    "list",
                    "List dead letters, newest first. As jsonl, with every error.",
                    f"{_QUEUE}.dead_letters:show",
                ),
                Command(
                    "retry",
                    "Run dead rollouts again from the beginning; print their groups.",
                    f"{_QUEUE}.dead_letters:retry",
                ),
                Command(
                    "drop",
                    "Drop dead rollouts and their errors. At a terminal it asks first.",
                    f"{_QUEUE}.dead_letters:drop",
                ),
            ),
        ),
    ),
    "Ask and judge": (
        Command(
            "query",
            "List trajectories that match all options, or with --step that step of each.",
            f"{_QUERY}.query:query",
        ),
        Command("show", "Show one trajectory, or one step of it.", f"{_QUERY}.query:show"),
        Command(
            "view",
            "Serve the page, and an HTTP API over the store under /api/v1, for reading only without --allow-writes.",
            f"{_SERVICES}.view:view",
            (
                Command(
                    "export",
                    "Write the page over matching trajectories into a directory that a browser opens without a server.",
                    f"{_SERVICES}.site:export",
                ),
            ),
        ),
        Command(
            "summary",
            "Count matching trajectories, average their rewards and show their success rate.",
            f"{_QUERY}.summary:summary",
        ),
        Command(
            "cost",
            "Count what attempts took of engines, sandboxes and judges; and with prices, what they cost.",
            "envs.costs.cli:cost",
        ),
        Command(
            "reward",
            "Reward a trajectory, or a step or an agent of it. Earlier rewards stay, superseded.",
            f"{_QUERY}.reward:app",
        ),
        Command(
            "label",
            "Label a trajectory, as 'query --label' finds it. Earlier labels stay, superseded.",
            f"{_QUERY}.label:label",
        ),
        Command(
            "rescore",
            "Score matching trajectories again. Earlier rewards stay, superseded; a failing scorer changes none.",
            "envs.rescoring.cli:rescore_stored",
        ),
    ),
    "Train": (
        Command(
            "train",
            "Train a policy on the rollouts of running workers; continue from the newest checkpoint.",
            "trainer_adapter.cli:train",
        ),
        Command(
            "health",
            "Show what was wrong with the last step of a training run, since when, and what to do.",
            f"{_SERVICES}.health:health",
        ),
        Command(
            "alerts",
            "Show what fires in any run; list all alarms; print rules for Prometheus; send messages.",
            f"{_SERVICES}.health:alarms",
            (
                Command(
                    "now",
                    "Show what fires now, the worst first. Runs without a trainer here show what Redis knows of them.",
                    f"{_SERVICES}.health:now",
                ),
                Command(
                    "list",
                    "List all alarms with their limits; 'now' is measured at any moment, without a trainer.",
                    f"{_SERVICES}.health:list_alarms",
                ),
                Command(
                    "prometheus",
                    "Print the alarms as a file of rules for Prometheus, over the gauges at /metrics of 'agent-layer"
                    " view'.",
                    f"{_SERVICES}.health:prometheus",
                ),
                Command(
                    "watch",
                    "Send each alarm of any run once when it begins to fire and once when it is over, until Ctrl-C.",
                    f"{_SERVICES}.health:watch",
                ),
                Command(
                    "test",
                    "Send one message through every alarm address. Exit 1 if one does not take it.",
                    f"{_SERVICES}.health:test",
                ),
            ),
        ),
        Command(
            "bisect",
            "Find the first token that engine and trainer computed differently, and the likely cause.",
            f"{_QUERY}.bisect:bisect",
        ),
        Command(
            "mix",
            "Show the weights of a run's task sources, or change them from the next submitted task on.",
            "trainer_adapter.tasks.cli:mix",
        ),
        Command(
            "replay",
            "Rebuild each training batch of a run and compare it with what was trained, byte for byte.",
            "trainer_adapter.cli:replay",
        ),
        Command(
            "recall",
            "Show what learned from trajectories that turned out to be wrong, and the last clean checkpoint.",
            "trainer_adapter.recall.cli:recall",
        ),
        Command(
            "checkpoint",
            "Checkpoints of training runs.",
            parts=(
                Command("list", "List the checkpoints of a run.", "trainer_adapter.cli:list_checkpoints"),
                Command(
                    "export",
                    "Write the weights of a checkpoint as a model directory in Hugging Face's form.",
                    "trainer_adapter.cli:export",
                ),
                Command(
                    "audit",
                    "Prove that no update behind a checkpoint learned from a held-out task, or list those that did.",
                    "trainer_adapter.tasks.audit_cli:audit",
                ),
            ),
        ),
        Command(
            "new",
            "Begin with something that runs.",
            parts=(
                Command(
                    "model",
                    "Write a tiny untrained chat model, for a first hour without a download.",
                    "trainer_adapter.cli:new_model",
                ),
                Command("env", "Write an environment with tasks and a scorer, and its test.", f"{_SCAFFOLDS}:new_env"),
                Command("taskset", "Write a task set with a scorer, and its test.", f"{_SCAFFOLDS}:new_taskset"),
                Command("scorer", "Write a scorer with tasks to try it on, and its test.", f"{_SCAFFOLDS}:new_scorer"),
            ),
        ),
        Command(
            "demo",
            "Train a LangGraph agent on this machine: vLLM, gateway, worker, veRL trainer, Redis and objects.",
            "trainer_adapter.demo.cli:demo",
        ),
    ),
    "Look after the machines": (
        Command(
            "doctor",
            "Report what is missing or unsafe, and how to mend it. Exit 1 if something is wrong.",
            f"{_SERVICES}.doctor:doctor",
        ),
        Command(
            "verify-cluster",
            "Measure what the GPUs of this machine do with updates, and write a page beside what the dry run expects.",
            "trainer_adapter.evidence.cli:verify_cluster",
        ),
        Command(
            "conformance",
            "Ask a capture endpoint, ours or another's, and compare what it recorded with what its engine sampled.",
            f"{_SERVICES}.conformance:conformance",
        ),
        Command(
            "serve",
            "Serve the gateway for configured engines (AGENT_LAYER_VLLM_URLS) and Redis.",
            f"{_SERVICES}.serve:serve",
        ),
        Command(
            "ingest",
            "Receive logs of machines that cannot reach the store, and OpenTelemetry spans.",
            f"{_SERVICES}.ingest:ingest",
        ),
        Command(
            "engines",
            "List inference engines; let one join, drain or leave; hold their calls.",
            f"{_SERVICES}.engines:engines",
            (
                Command("list", "List all engines of the namespace.", f"{_SERVICES}.engines:list_engines"),
                Command(
                    "join",
                    "Let an engine answer calls, once it has the newest version; a drained one serves again.",
                    f"{_SERVICES}.engines:join",
                ),
                Command(
                    "drain",
                    "Send an engine no more calls, and wait for those in flight. New weights still arrive.",
                    f"{_SERVICES}.engines:drain",
                ),
                Command(
                    "hold",
                    "Let calls to engines wait while their owner changes weights; returns when none is in flight.",
                    f"{_SERVICES}.engines:hold",
                ),
                Command(
                    "release",
                    "Let calls go to held engines again, under the version that they have now.",
                    f"{_SERVICES}.engines:release",
                ),
                Command(
                    "leave",
                    "Remove an engine from the registry; its calls in flight end normally.",
                    f"{_SERVICES}.engines:leave",
                ),
            ),
        ),
        Command(
            "store",
            "Maintain the store: check, rebuild, compact, delete, import and export.",
            parts=(
                Command(
                    "reindex",
                    "Rebuild the Redis index from the objects; continue a rebuild that was stopped.",
                    f"{_STORE}.index:reindex",
                ),
                Command(
                    "check",
                    "Compare index and objects in both directions, and verify every checksum.",
                    f"{_STORE}.index:check",
                ),
                Command(
                    "cool",
                    "Remove a finished namespace from Redis. Its objects stay; 'reindex' restores it.",
                    f"{_STORE}.index:cool",
                ),
                Command(
                    "import",
                    "Import OpenAI-style messages, or requests with responses, as text. Each file is imported once.",
                    f"{_QUERY}.files:import_messages",
                ),
                Command(
                    "delete",
                    "Delete trajectories for ever: from search, rebuild and replay, and their bytes from the objects.",
                    f"{_STORE}.delete:delete",
                ),
                Command(
                    "expire", "Delete trajectories that match every rule and filter given.", f"{_STORE}.delete:expire"
                ),
                Command(
                    "compact",
                    "Merge small segments, and rewrite segments that hold deleted bytes; readers are not disturbed.",
                    f"{_STORE}.compact:compact",
                ),
                Command(
                    "gc",
                    "Remove unneeded objects: replaced segments, unfinished objects, old tombstones.",
                    f"{_STORE}.compact:gc",
                ),
                Command(
                    "acl",
                    "Print redis-cli lines that create a Redis user for each role of this namespace.",
                    f"{_STORE}.acl:acl",
                ),
                Command(
                    "export",
                    "Write finished trajectories into files.",
                    parts=(
                        Command(
                            "parquet",
                            "Keep a Parquet dataset equal to a query: DIR/{trajectories,steps}/*.parquet.",
                            f"{_QUERY}.files:parquet",
                        ),
                        Command(
                            "jsonl",
                            "Write one line per trajectory, as 'show --format json' prints it.",
                            f"{_QUERY}.files:jsonl",
                        ),
                        Command(
                            "verl",
                            "Write the tasks of trajectories as a veRL dataset: one row per task.",
                            f"{_DATASETS}:verl",
                        ),
                        Command(
                            "sft",
                            "Write answers to imitate (SFT): ids, loss mask and log-probabilities as sampled, with a"
                            " card.",
                            f"{_DATASETS}:sft",
                        ),
                        Command(
                            "pairs",
                            "Write pairs to prefer (DPO): a better and a worse rollout of one group that answered the"
                            " same prompt.",
                            f"{_DATASETS}:pairs",
                        ),
                        Command(
                            "steps",
                            "Write single calls: prompt, answer, reward of the step and of its rollout.",
                            f"{_DATASETS}:steps",
                        ),
                        Command(
                            "hf",
                            'Write one dataset of all three kinds: load_dataset(DIR, "sft"), "pairs" or "steps".',
                            f"{_DATASETS}:hf",
                        ),
                    ),
                ),
            ),
        ),
        Command(
            "export",
            "Send stored trajectories to other systems.",
            parts=(
                Command(
                    "otlp",
                    "Send finished trajectories as OpenTelemetry spans (GenAI conventions) to an OTLP/HTTP endpoint.",
                    f"{_QUERY}.otlp:otlp",
                ),
            ),
        ),
    ),
}
"""Commands by their panel in ``--help``."""
