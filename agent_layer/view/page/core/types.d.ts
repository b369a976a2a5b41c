// What /api/v1 answers, as far as the page reads it. `null` is "not known".
export interface Row {
  trajectory_id: string; rollout_id: string; attempt: number; task_id: string; task_type: string; run: string; split: string;
  group_id: string | null; status: string; cause: string | null; accepted: boolean; reward: number | null; num_steps: number;
  policy_min: number | null; policy_max: number | null; agents: string[]; tools: string[]; started_at: string | null;
  ended_at: string | null; labels: Record<string, string>; worker: string | null; findings: string[]; engines: string[];
}
export interface Change { kind: "run" | "trajectory" | "step" | "group" | "update" | "fleet"; runs: string[]; ids: string[]; num: number }
export interface Match { row: Row; step: number | null; where: string; snippet: { text: string; is_match: boolean }[] }
export interface Found { items: Match[]; cursor: string | null; num_segments: number; num_waiting: number; left_out: string[] }
export interface Page<T> { items: T[]; cursor: string | null; command: string; python: string }
export interface RunSummary {
  run: string; num_trajectories: number; num_accepted: number; num_rewarded: number; mean_reward: number | null;
  success_rate: number | null; newest_version: number | null; num_updates: number; newest_started_at: string | null; health: Level; finding: string | null; finding_title: string | null; is_evaluation: boolean; is_cooled: boolean; num_cooled: number;
}
export type Level = "ok" | "warn" | "stop" | "unknown";
export interface Finding { name: string; title?: string; level: "warn" | "stop"; value: number | null; limit: number; since_step: number | null; sentence: string; advice: string; subject?: string | null; since?: number | null; view?: "trajectories" | "failures" | "learning" | "update" | "fleet" | null; filters?: Record<string, string> }
export interface Alarm { kind: string; num: number; sentence: string; filters: Record<string, string> }
export interface Health { level: Level; sentence: string; step: number | null; findings: Finding[]; alarms: Alarm[] }
export interface Counts {
  trajectories: number; accepted: number; rewarded: number; mean_reward: number | null; success_rate: number | null;
  by_status: Record<string, number>; by_cause: Record<string, number>; by_finding: Record<string, number>;
}
export type Column = (number | null)[];
export interface Progress {
  source: string; step: number[]; policy_version: number[]; ended_at: number[]; numbers: Record<string, Column>;
  evaluations: { step: number; name: string; pass_rate: number | null; reward_mean: number | null }[];
}
export interface Run {
  run: string; is_evaluation: boolean; is_cooled: boolean; num_cooled: number; health: Health; held_out: { level: string; sentence: string } | null; counts: Counts;
  newest_version: { number: number; training_step: number | null } | null; failures: Row[]; steps: Progress;
}
export interface Observation { name: string; arguments: unknown; output: unknown; status: string | null; duration_seconds: number | null; truncated: boolean; agent: string | null; at: number | null }
export interface Message { role: string; content: unknown; tool_calls?: unknown[]; reasoning?: string; reasoning_content?: string; name?: string }
export interface Step {
  index: number; call_id: string; agent: string | null; role: string; parent: number | null; started_at: number; ended_at: number | null;
  status: string | null; error: string | null; findings: string[]; break_cause: string | null;
  capture_level: string; model: string | null; engine: string | null; finish_reason: string | null; temperature: number | null;
  message: Message | null; new_messages: Message[]; num_messages: number | null; num_prompt_tokens: number | null; prefix_length: number | null;
  num_response_tokens: number | null; policy_versions: [number, number][] | null; logprob_mean: number | null; reward: number | null; observations: Observation[];
}
export interface Reward { name: string; score: number | null; scope: string; step: number | null; agent: string | null; source: string; status: string; comment: string | null; judge: string | null; is_current: boolean; void: boolean; at: number }
export interface GivenLabel { label_id: string; name: string; value: string | null; source: string; comment: string | null; is_current: boolean; at: number }
export interface Update { run: string; step: number; policy_version: number; num_tokens: number | null; num_trained: number | null; advantage_mean: number | null }
export interface Trajectory {
  row: Row; is_cooled: boolean; task: { id: string; input: unknown; [name: string]: unknown } | null; reward: number | null; steps: Step[]; observations: Observation[]; rewards: Reward[]; given_labels: GivenLabel[];
  outcome: { status: string; cause: string | null; error: string | null; traceback: string | null; times: Record<string, number | null> } | null;
  alarms: { kind: string; detail: string }[]; exclusions: { kind: string; reason: string; step: number | null }[]; updates: Update[];
  siblings: { group_id: string | null; position: number | null; trajectory_ids: string[] }; num_given: number; num_sampled: number;
}
export interface Part { step: number; start: number; num_given: number; num_sampled: number; prefix_length: number; parent: number | null; break_cause: string | null; update: number | null }
export interface TokenPage {
  begin: number; end: number; total: number; has_vocabulary: boolean; parts: Part[]; ids: number[]; texts: (string | null)[]; sampled: (0 | 1)[]; steps: number[];
  logprobs: Column; trained_logprobs: Column; advantages: Column; mask: (0 | 1 | null)[]; versions: Column;
}
export interface Worker { worker: string; state: "up" | "draining" | "silent"; silent_seconds: number; slots: number | null; held: number | null; agent: string | null; offers: string[] }
export interface RunQueue {
  run: string; weight: number; quota: number | null; paused: string | null; is_failing: boolean; num_queued: number; num_delayed: number; num_paused: number; num_leased: number; num_accepted: number;
  num_dead: number; num_lapsed: number; accepted_lately: number; lately_seconds: number; failure_rate: number | null; causes: Record<string, number>;
}
export interface Queue {
  now: number; totals: { num_queued: number; num_delayed: number; num_paused: number; num_leased: number; num_dead: number; num_open_groups: number };
  runs: RunQueue[]; backlog: { needs: string[]; num: number; num_workers: number }[];
  leases: { rollout_id: string; trajectory_id: string; run: string; status: string; worker: string | null; since: number; lease_seconds: number | null; is_lapsing: boolean; num_attempts: number }[];
}
export interface Engine {
  url: string; run: string; version: number; model: string; state: string; is_drained: boolean; is_pushed: boolean; num_switches: number;
  stall_seconds: number | null; stalled_seconds: number; newest_version: number | null; behind_seconds: number; is_stale: boolean; held_seconds: number | null;
}
export interface DeadLetters { total: number; items: { rollout_id: string; run: string; died_at: number; num_attempts: number; worker: string | null; errors: string[] }[]; by_error: { error: string; num: number }[] }
export interface Box { box: string; kind: string; role: string; task: string; owner: string; taken_at: number }
export interface DiffStep { a: number | null; b: number | null; is_same: boolean; part: "prompt" | "answer" | null; at_token: number | null }
export interface Diff { a: Row; b: Row; damaged: Record<string, string>; first_step: number | null; first_token: number | null; num_tokens_a: number; num_tokens_b: number; steps: DiffStep[] }
export interface LearningPoint { key: string; version: number | null; count: number; num_rewarded: number; mean_reward: number | null; success_rate: number | null; filters: Record<string, string> }
export interface Learning {
  run: string; by: string; points: LearningPoint[]; evaluations: { step: number; name: string; policy_version: number; pass_rate: number | null; reward_mean: number | null }[];
  regressions: { name: string; from_step: number; to_step: number; from_version: number; to_version: number; from_rate: number; to_rate: number; is_clear: boolean }[];
}
export interface Failures {
  num: number; num_all: number; num_read: number; by_status: { value: string; count: number }[]; by_cause: { value: string | null; count: number }[]; by_task_type: { value: string | null; count: number }[];
  errors: { kind: string; num: number; cause: string | null; newest: string; examples: string[] }[]; newest: Row[];
  self_inflicted: { task_id: string; version: number | null; num: number }[];
}
export interface ForkNode {
  step: number; call_id: string; choice: number; parent: number | null; link: "tokens" | "call" | null; prefix_length: number; num_given: number; num_sampled: number;
  agent: string | null; conversation: string | null; status: string | null; cause: string | null; is_subagent: boolean; is_abandoned: boolean;
}
export interface Forks { nodes: ForkNode[]; rows: number[][]; num_tokens: number; num_given_again: number; causes: Record<string, number> }
export interface Member {
  row: Row; member: number; kind: string; reward: number | null; advantage: number | null; update: number | null;
  run_seconds: number | null; num_sampled: number | null; first_divergence: number | null; damaged: string | null;
}
export interface Group {
  group_id: string; run: string | null; task_id: string | null; task_type: string | null; group_size: number | null; num_launched: number | null; num_usable: number | null; num_surplus: number;
  is_closed: boolean; kept_seconds: number | null; surplus_seconds: number | null; reward_mean: number | null; reward_std: number | null;
  is_zero_std: boolean; members: Member[];
}
export interface Lane {
  trajectory_id: string; group_id: string; task_id: string | null; reward: number | null; reward_now: number | null; policy_min: number | null; policy_max: number | null;
  num_tokens: number | null; num_trained: number | null; advantage: number | null; queued_at: number | null; started_at: number | null; run_ended_at: number | null;
  scored_at: number | null; sealed_at: number | null; accepted_at: number | null; trained_at: number; damaged: string | null;
}
export interface UpdateSummary { step: number; trained_at: number; policy_version: number; num_rollouts: number; num_samples: number; reward_mean: number | null; num_groups: number }
export interface UpdateDetail {
  run: string; step: number; policy_version: number; trained_at: number; num_samples: number; num_deleted: number; rollouts: Lane[];
  excluded: { trajectory_id: string; kind: string; reason: string; at: number | null }[];
  not_learned: string[]; findings: Finding[]; gap_by_engine: Record<string, number | null>;
  groups: { group_id: string; num: number; reward_mean: number | null; is_zero_std: boolean }[];
}
