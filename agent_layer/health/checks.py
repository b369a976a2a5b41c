"""The checks of a training run: the one list of what can be wrong, from which trainer, page and alarms derive.

Each check of ``STEP_CHECKS`` measures one number over the last steps of a run. Beyond its threshold ``warn`` it is a
finding in the step's report, beyond ``stop`` the trainer ends the run with a checkpoint. Only whole windows count, and
a window begins at the start of the trainer at the earliest, so that a run that was started again is not stopped for
what was before. Each of ``LIVE_CHECKS`` measures one number of this moment, with or without a trainer, and only warns.
A finding that fires is an alarm, by the name of its check.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from agent_layer.health.findings import FindingView
from agent_layer.health.measures import (
    LOW_ENTROPY,
    MIN_JUDGED,
    SUCCESS_REACHED,
    Measure,
    MeasureNow,
    Reports,
    RunSnapshot,
    before_success,
    drift_of_length,
    engine_with_gap,
    engines_left,
    forgotten_task,
    jump_to_success,
    lasting,
    lasting_below,
    lost_success,
    read_metric,
    rise_of_entropy,
    self_inflicted_task,
    share_of_calls,
    share_of_dead_groups,
    share_of_failures,
    share_of_lost_tasks,
    share_of_rollouts,
    stalled_intervals,
    starved_seconds,
    swap_of_success,
    unserved_seconds,
)
from agent_layer.infra import describe_lost

MAX_WINDOW: Final = 100
"""Steps; a trainer remembers as many reports, and those before them with which some checks compare."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be wrong."""

    name: str
    title: str
    """What is wrong, in the words of a headline."""
    measures: str
    """What is measured, over each step of the window unless it says otherwise."""
    unit: str
    warn: float | None
    """Threshold of a warning; None: it never warns."""
    stop: float | None = None
    """Threshold at which the run ends; None: it never does."""
    steps: int = 0
    """Window: steps that must have been beyond the threshold, one after another; 0: it is measured now."""
    advice: str
    """What it means, and what to do."""
    is_low_bad: bool = False
    """Whether a number below the threshold is beyond it."""
    view: FindingView
    """View of the page where it can be seen."""
    filters: Mapping[str, str] = {}
    """Filters for trajectories that show it, as the command line names them."""
    subject_filter: str | None = None
    """Filter that selects the trajectories of its subject."""


class StepCheck(Check, frozen=True, kw_only=True):
    """One thing that can be wrong with steps."""

    steps: int = 1
    measure: Measure
    subject: Callable[[Reports, int], str | None] = lambda _reports, _steps: None
    """What it is about, from what ``measure`` gets; None: the run as a whole."""


class LiveCheck(Check, frozen=True, kw_only=True):
    """One thing that can be wrong now."""

    measure: MeasureNow
    subject: Callable[[RunSnapshot], str | None] = lambda _: None
    """What it is about; None: the run as a whole."""
    since: Callable[[RunSnapshot], float | None] = lambda _: None
    """When it began, in seconds since the epoch; None: not known, or ``now`` less what is measured in seconds."""


STEP_CHECKS: Final[tuple[StepCheck, ...]] = (
    StepCheck(
        name="null_rewards",
        title="Rollouts fail without a reward",
        view="failures",
        measures="rollouts without a reward: they failed for a cause other than the policy",
        unit="share of rollouts",
        warn=0.25,
        stop=0.5,
        advice="Environments, tools or scorers fail; the policy learns from the rest. 'agent-layer dead list' and"
        " 'agent-layer query --status failed' show why.",
        measure=lasting(share_of_rollouts(lambda report: report.num_null_rewards)),
    ),
    StepCheck(
        name="untrainable",
        title="Rollouts cannot be trained",
        view="update",
        measures="rollouts that cannot be trained exactly, and are left out",
        unit="share of rollouts",
        warn=0.05,
        stop=0.5,
        advice="Their sampling or their capture is wrong; the table 'What is left out' of the training guide says what"
        " to do about each kind.",
        measure=lasting(share_of_rollouts(lambda report: report.num_untrainable)),
    ),
    StepCheck(
        name="fake_zeros",
        title="Failures are scored as 0",
        view="trajectories",
        filters={"reward": "0..0", "accepted": "1"},
        measures="rollouts with reward 0 whose policy made no call, or whose last call failed",
        unit="share of rollouts",
        warn=0.05,
        stop=0.25,
        steps=3,
        advice="Failures of the infrastructure are scored as failures of the policy, which learns to avoid what it did"
        " not do. Let the scorer return None for them; 'agent-layer query --reward 0..0' lists them.",
        measure=lasting(share_of_rollouts(lambda report: report.num_fake_zeros)),
    ),
    StepCheck(
        name="self_inflicted",
        title="Rollouts end their own sandboxes",
        view="trajectories",
        filters={"finding": "self_inflicted"},
        subject=self_inflicted_task,
        subject_filter="task",
        measures="rollouts whose own commands ended a sandbox or used up their time",
        unit="share of rollouts",
        warn=0.1,
        steps=3,
        advice="The policy tries to escape, or sandboxes are too small; 'agent-layer show TRAJECTORY' says which.",
        measure=lasting(share_of_rollouts(lambda report: sum(report.self_inflicted.values()))),
    ),
    StepCheck(
        name="capture_gaps",
        title="Recorded calls are missing",
        view="update",
        measures="rollouts with a call that never ended, or with fewer recorded calls than the gateway counted",
        unit="share of rollouts",
        warn=0.01,
        stop=0.1,
        steps=3,
        advice="Steps are missing from the store. Look into the gateway's log, then run 'agent-layer store check'.",
        measure=lasting(share_of_rollouts(lambda report: report.num_gaps)),
    ),
    StepCheck(
        name="dropped_steps",
        title="Calls are lost",
        view="trajectories",
        filters={"accepted": "1"},
        measures="calls whose tokens are not trained because they were aborted or failed",
        unit="share of calls",
        warn=0.1,
        stop=0.4,
        steps=3,
        advice="Agents lose their calls: engines fail, time limits are short, or clients close streams early."
        " 'agent-layer show TRAJECTORY' names the error of each step.",
        measure=lasting(share_of_calls(lambda report: report.num_dropped_steps)),
    ),
    StepCheck(
        name="forks",
        title="Prompts break their prefix",
        view="trajectories",
        filters={"finding": "prefix_break"},
        measures="calls whose prompt does not continue the tokens of an earlier one although it should",
        unit="share of calls",
        warn=0.3,
        steps=5,
        advice="The agent or the chat template changes earlier messages, so that every fork is trained in a row of its"
        " own and costs its whole prompt. 'agent-layer show TRAJECTORY' names the cause of each.",
        measure=lasting(share_of_calls(lambda report: report.num_forks)),
    ),
    StepCheck(
        name="stale_rollouts",
        title="Rollouts are too old",
        view="learning",
        measures="rollouts with a token older than max_staleness allows, those of redone groups included",
        unit="share of rollouts",
        warn=0.4,
        stop=0.75,
        advice="Their groups are sampled again, which costs time. Engines fall back to old weights, or the trainer was"
        " restarted often; 'agent-layer engines' shows the version that each serves.",
        measure=lasting(share_of_rollouts(lambda report: report.num_stale_rollouts)),
    ),
    StepCheck(
        name="logprob_gap",
        title="Trainer and engine disagree",
        view="update",
        measures="mean difference between trainer and engine in the log-probability of tokens that the trained weights"
        " sampled",
        unit="nats",
        warn=0.05,
        stop=0.2,
        steps=2,
        advice="Trainer and engine are not the same model: weights that did not arrive, another precision, template or"
        " sampling. If one engine is named, let it leave and join again; go back to the checkpoint before.",
        subject=engine_with_gap,
        subject_filter="engine",
        measure=lasting(read_metric("logprob_gap_mean")),
    ),
    StepCheck(
        name="importance_tail",
        title="Sampling and training differ",
        view="update",
        measures="tokens whose probabilities in sampling and training differ by more than algorithm.correction.upper",
        unit="share of tokens",
        warn=0.1,
        stop=0.3,
        steps=3,
        advice="The trained policy is no longer the one that sampled. Lower rollouts.max_staleness or the learning"
        " rate; if logprob_gap is high too, trainer and engine compute differently.",
        measure=lasting(
            read_metric("rollout_corr/rollout_is_ratio_fraction_high", "rollout_corr/rollout_is_ratio_fraction_low")
        ),
    ),
    StepCheck(
        name="rejected",
        title="Most tokens are rejected",
        view="update",
        measures="tokens that the rules of algorithm.correction.reject keep out of the update",
        unit="share of tokens",
        warn=0.3,
        stop=0.9,
        steps=3,
        advice="Hardly anything is learned. Lower rollouts.max_staleness or the learning rate, or loosen the rules; if"
        " logprob_gap is high too, trainer and engine compute differently.",
        measure=lasting(read_metric("rejected")),
    ),
    StepCheck(
        name="clip_fraction",
        title="Most of the update is clipped",
        view="update",
        measures="tokens whose gradient the loss clipped",
        unit="share of tokens",
        warn=0.4,
        stop=0.7,
        steps=3,
        advice="Updates are too large for what they learn from. Lower the learning rate, epochs or minibatches, or"
        " begin with a warm-up.",
        measure=lasting(read_metric("actor/pg_clipfrac")),
    ),
    StepCheck(
        name="gradient",
        title="The gradient is too large",
        view="update",
        measures="norm of the gradient before clipping; beyond every threshold if it is not finite",
        unit="norm",
        warn=1e3,
        stop=1e5,
        steps=3,
        advice="Optimizer steps whose gradient is not finite are skipped. Lower the learning rate, train in float32,"
        " and look at the metrics of the steps in progress.jsonl.",
        measure=lasting(read_metric("grad_norm")),
    ),
    StepCheck(
        name="entropy_low",
        title="The policy stopped exploring",
        view="learning",
        measures=f"entropy of the policy while its success is below {SUCCESS_REACHED:g}",
        unit="nats for each token",
        warn=0.02,
        stop=0.002,
        steps=5,
        is_low_bad=True,
        advice="The policy tries nothing else any more, so it cannot find better answers. Go back to an earlier"
        " checkpoint, and raise algorithm.entropy or algorithm.clip_high.",
        measure=before_success(lasting_below, read_metric("entropy")),
    ),
    StepCheck(
        name="entropy_rise",
        title="The policy turns into noise",
        view="learning",
        measures="entropy of the policy above its median over the 20 steps before",
        unit="nats for each token",
        warn=1.0,
        stop=2.0,
        steps=3,
        advice="The policy dissolves into noise. Go back to an earlier checkpoint, and lower algorithm.entropy or the"
        " learning rate.",
        measure=rise_of_entropy,
    ),
    StepCheck(
        name="dead_groups",
        title="Groups teach nothing",
        view="update",
        measures=f"groups whose rewards are all equal, while success is below {SUCCESS_REACHED:g}",
        unit="share of groups",
        warn=0.9,
        stop=0.99,
        steps=5,
        advice="Nothing is learned: the tasks are too hard, or the scorer always answers the same. Choose easier tasks,"
        " larger groups or a graded reward.",
        measure=before_success(lasting, share_of_dead_groups),
    ),
    StepCheck(
        name="always_succeeds",
        title="Every rollout succeeds, all at once",
        view="trajectories",
        filters={"reward": "1..", "accepted": "1"},
        measures="rise of success at the step since which every rollout succeeds",
        unit="success",
        warn=0.3,
        steps=3,
        advice="The scorer always answers the same, or the tasks are too easy; nothing is learned. Read some answers"
        " ('agent-layer query --reward 1..'), and score a wrong one by hand.",
        measure=jump_to_success,
    ),
    StepCheck(
        name="length_drift",
        title="Answers change their length",
        view="trajectories",
        filters={"accepted": "1"},
        measures="trained tokens of a rollout against their median over the 20 steps before, up or down",
        unit="doublings",
        warn=1.5,
        stop=3.0,
        steps=3,
        advice="Answers grow or shrink much faster than they learn: look at some ('agent-layer query --policy'), and at"
        " what the reward pays for.",
        measure=drift_of_length,
    ),
    StepCheck(
        name="success_gone",
        title="A task is forgotten",
        view="trajectories",
        subject=forgotten_task,
        subject_filter="task",
        measures="earlier success of a task that had none in its last results, one for each step of the window",
        unit="success",
        warn=0.5,
        stop=0.8,
        steps=5,
        advice="A task that was solved is forgotten, or its environment broke. Compare its rollouts before and after"
        " ('agent-layer query --task'), and go back to an earlier checkpoint.",
        measure=lost_success,
    ),
    StepCheck(
        name="success_swaps",
        title="Two tasks trade their success",
        view="learning",
        measures=f"correlation of the success of two tasks over the window, while the entropy stays below"
        f" {LOW_ENTROPY:g}",
        unit="correlation",
        warn=-0.85,
        steps=20,
        is_low_bad=True,
        advice="Two tasks take their success from each other: the policy gives both the same answer, and explores too"
        " little to tell them apart. Raise algorithm.entropy, or begin again with more of it.",
        measure=swap_of_success,
    ),
    StepCheck(
        name="restarts",
        title="A process died and was restarted",
        view="fleet",
        measures="engines, or whole trainers, that died and were started again since the step before",
        unit="restarts",
        warn=0.0,
        advice="restarts.jsonl of the run tells what died and why; the logs of trainer and engines say more. Memory is"
        " the most frequent cause.",
        measure=lasting(lambda report: len(report.restarts)),
    ),
)

LIVE_CHECKS: Final[tuple[LiveCheck, ...]] = (
    LiveCheck(
        name="data_lost",
        title="Redis lost data",
        view="fleet",
        measures="whether Redis was emptied in the last day, or put back to an older copy",
        unit="losses",
        warn=0.0,
        advice=f"Engines, gateways, workers and pages announce themselves again. 'agent-layer store reindex' rebuilds"
        f" trajectories, groups and versions, and ends this alarm. What is gone: {describe_lost()}. Submit again what"
        " was queued; nothing that was accepted runs twice once the index is rebuilt.",
        measure=lambda facts: 0.0 if facts.data_lost_at is None else 1.0,
        since=lambda facts: facts.data_lost_at,
    ),
    LiveCheck(
        name="no_engine",
        title="No engine answers calls",
        view="fleet",
        measures="engines that are registered and not drained, while rollouts wait or run",
        unit="engines",
        warn=1.0,
        is_low_bad=True,
        advice="Calls wait, then fail. 'agent-layer engines join URL' adds one, 'agent-layer engines' lists them.",
        measure=engines_left,
    ),
    LiveCheck(
        name="refused",
        title="A server refuses the workers",
        view="fleet",
        measures="whether the run is paused because a server does not take the workers' key",
        unit="refusals",
        warn=0.0,
        advice="'agent-layer runs' shows which server, and why. Give the same AGENT_LAYER_API_KEY to gateways and"
        " workers: the run goes on by itself. 'agent-layer doctor' tries the key.",
        measure=lambda facts: float(facts.is_refused),
    ),
    LiveCheck(
        name="starved",
        title="The run gets no slots",
        view="fleet",
        measures="time for which rollouts wait while workers neither hold nor end any of the run",
        unit="seconds",
        warn=300.0,
        advice="Other runs get all slots, or no worker is up. 'agent-layer runs' shows the share of each run,"
        " 'agent-layer workers' who works; raise the share with 'agent-layer runs share', or add workers.",
        measure=starved_seconds,
    ),
    LiveCheck(
        name="unserved",
        title="No worker offers what rollouts need",
        view="fleet",
        subject=lambda facts: facts.unserved_needs,
        measures="time for which rollouts wait although no worker that is up offers what they need",
        unit="seconds",
        warn=120.0,
        advice="Start a worker that offers it: the page's Fleet shows what waits for what, 'agent-layer tasks' what"
        " tasks need.",
        measure=unserved_seconds,
    ),
    LiveCheck(
        name="stall",
        title="No step for too long",
        view="fleet",
        measures="time since the last step, while work of the run is left",
        unit="usual intervals between steps",
        warn=6.0,
        advice="The trainer died, or waits: for rollouts that hang, for engines, for workers. Look at its output, at"
        " 'agent-layer rollouts' and at 'agent-layer engines'.",
        measure=stalled_intervals,
        since=lambda facts: facts.step_times[-1],
    ),
    LiveCheck(
        name="failing",
        title="Many attempts fail",
        view="failures",
        measures=f"newest attempts that failed, of {MIN_JUDGED} or more",
        unit="share of attempts",
        warn=0.3,
        advice="Agents, environments or the gateway fail; beyond AGENT_LAYER_STOP_FAILURE_RATE the run is paused."
        " 'agent-layer dead list --errors' and 'agent-layer query --status failed' show why.",
        measure=share_of_failures,
    ),
    LiveCheck(
        name="lost_tasks",
        title="Tasks are given up",
        view="failures",
        measures=f"rollouts that were given up after their last retry, of {MIN_JUDGED} ended ones or more",
        unit="share of ended rollouts",
        warn=0.05,
        advice="Their tasks are not trained. 'agent-layer dead list --errors' shows why; mend it, then"
        " 'agent-layer dead retry' tries them again.",
        measure=share_of_lost_tasks,
    ),
    LiveCheck(
        name="engine_behind",
        title="An engine serves old weights",
        view="fleet",
        subject=lambda facts: facts.engine_behind,
        subject_filter="engine",
        measures="time for which an engine serves an older version although a newer one is there",
        unit="seconds",
        warn=600.0,
        advice="It samples with old weights. Let it leave, or join again; 'agent-layer engines' shows each version.",
        measure=lambda facts: facts.engine_behind_seconds,
    ),
    LiveCheck(
        name="engine_held",
        title="Calls of an engine are held",
        view="fleet",
        subject=lambda facts: facts.engine_held,
        subject_filter="engine",
        measures="time for which a switch of weights holds the calls of an engine",
        unit="seconds",
        warn=600.0,
        advice="The process that switched it died, or a call does not end: start the trainer again, or let it leave.",
        measure=lambda facts: facts.engine_held_seconds,
    ),
)

CHECKS: Final[tuple[StepCheck | LiveCheck, ...]] = (*STEP_CHECKS, *LIVE_CHECKS)
