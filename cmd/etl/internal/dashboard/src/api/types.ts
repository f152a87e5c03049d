// The types of the HTTP API, as Go writes them: cmd/etl/internal/api, pipeline/live.go,
// pipeline/describe.go and checkpoint/stats.go. Times are RFC 3339; the unit stands with
// each number that has one.

export type State = "invalid" | "starting" | "running" | "restarting" | "stopping" | "paused" | "stopped" | "finished" | "failed";

export type Level = "info" | "warning" | "error";

export interface Problem {
  kind: string;
  level: Level;
  text: string;
  help?: string;
  step?: string;
  since: string;
}

export interface Health {
  ok: boolean;
  problems: Problem[] | null;
}

export interface Restored {
  path: string;
  number: number;
  time: string;
  took: number; // ns
}

export interface Status {
  pipeline: string;
  job?: string;
  generation?: number;
  storage?: string;
  phase: string;
  since: string;
  failure?: string;
  restarts: number;
  outcome?: string;
  last_checkpoint?: string;
  restored?: Restored;
}

export interface Counts {
  read: number;
  bytes: number;
  written: number;
  filtered: number;
  skipped: number;
  dead: number;
  late: number;
}

export interface CheckpointSummary {
  number: number;
  path: string;
  time: string;
  duration: number; // s
  size: number;
  new_size: number;
}

export interface Pipeline {
  name: string;
  file?: string;
  state: State;
  since: string;
  status?: Status;
  failure?: string;
  help?: string;
  health: Health;
  read_rate: number;
  byte_rate: number;
  write_rate: number;
  lag_records: number; // -1: not known
  lag_seconds: number; // -1: not known
  counts: Counts;
  checkpoint?: CheckpointSummary;
  failed_checkpoints: number;
  restarts: number;
  guarantee?: Guarantee | "";
  pending?: string;
}

export type Guarantee = "exactly_once" | "effectively_once" | "at_least_once";

export type AttemptStatus = "in_progress" | "committing" | "completed" | "failed" | "subsumed";

export interface TaskStats {
  task: { Chain: string; Subtask: number };
  acked: boolean;
  latency: number; // ns, from here on
  start_delay: number;
  alignment: number;
  sync: number;
  async: number;
  buffered: number; // bytes
  size: number; // bytes
}

export interface Attempt {
  id: { generation: number; number: number };
  kind: "checkpoint" | "initial" | "final" | "savepoint";
  status: AttemptStatus;
  triggered: string;
  duration: number; // ns
  metadata: number; // ns
  commit: number; // ns
  size: number;
  new_size: number;
  acked: number;
  tasks: TaskStats[] | null;
  failure?: string;
}

export interface Checkpoints {
  triggered: number;
  completed: number;
  failed: number;
  subsumed: number;
  failed_in_a_row: number;
  late_acks: number;
  unknown_acks: number;
  cleaning: number;
  clean_failures: number;
  last?: Attempt;
  history: Attempt[] | null;
  earlier: Attempt[] | null;
  duration_percentiles: Record<string, number> | null; // s
  size_percentiles: Record<string, number> | null; // bytes
  interval: number; // s
  timeout: number; // s
  mode: string;
  storage: string;
  retained: number;
}

export interface Savepoint {
  path: string;
  number: number;
  time: string;
  size: number;
  drained?: boolean;
  periodic?: boolean;
}

export interface Definition {
  file: string;
  written: string;
  effective: string;
  running?: string;
  faults?: string;
}

export interface Event {
  number: number;
  time: string;
  pipeline?: string;
  kind: string;
  level: Level;
  text: string;
  actor?: string;
}

export interface Line {
  number: number;
  time: string;
  level: string;
  pipeline?: string;
  text: string;
  attrs?: Record<string, unknown>;
}

export interface Reload {
  time: string;
  ok: boolean;
  pipelines: Record<string, string> | null;
}

export interface Daemon {
  version: string;
  pid: number;
  started: string;
  folder?: string;
  listens: string[] | null;
  ready: boolean;
  memory: number; // budget, bytes
  rss: number; // bytes
  cpu_seconds: number;
  goroutines: number;
  last_reload?: Reload;
}

export interface StartOptions {
  from?: string;
  claim?: boolean;
  accept_duplicates?: boolean;
  allow_non_restored_state?: boolean;
  allow_drained?: boolean;
  set_offsets?: Record<string, number>;
}

export interface Moved {
  split: string;
  before: number;
  after: number;
}

export interface Taken {
  pipeline: string;
  job: string;
  number?: number;
  path?: string;
  drained?: boolean;
  warning?: string;
}

export interface Fault {
  level: Level;
  line: number;
  column: number;
  code?: string;
  text: string;
  help?: string;
}

export interface Validation {
  valid: boolean;
  pipeline?: string;
  faults: Fault[] | null;
}

export interface Plan {
  description: Description;
  text: string;
  change?: string;
  why?: string;
}

export interface Stream {
  branch?: string;
  fields: { name: string; type: string }[];
  complete: boolean;
  updating: boolean;
  key?: string[];
}

export interface Operator {
  name: string;
  role: "source" | "step" | "sink";
  kind: string;
  chain: string;
  inputs?: { from: string; exchange: "chained" | "forward" | "key"; key?: string[] }[];
  state?: { key: string[] | null; backend: string };
  changes?: string;
  guarantee?: Guarantee | "";
  takes?: Stream;
  outputs?: Stream[];
}

export interface Description {
  pipeline: string;
  parallelism: number;
  max_parallelism: number;
  mode: string;
  modes_equal: boolean;
  operators: Operator[] | null;
}

export interface OperatorFlow {
  name: string;
  in: number;
  out: number;
  branches?: Record<string, number>; // of out, by the branch of a step that has several
  bytes_in: number;
  errors?: Record<string, number>;
  dropped: number;
  late: number;
  watermark?: number; // ms since 1970
  idle: boolean;
  state_keys: number;
  state_memory: number;
  state_disk: number;
}

export interface TaskFlow {
  chain: string;
  subtask: number;
  busy: number;
  backpressured: number;
  idle: number;
  queued: number;
  queue: number;
}

export interface SplitFlow {
  source: string;
  split: string;
  position: number;
  behind: number;
  behind_seconds: number;
  retention_seconds: number;
  watermark?: number;
  idle: boolean;
  caught_up: boolean;
  paused: boolean;
}

export interface SinkFlow {
  sink: string;
  guarantee: Guarantee;
  pending: number;
  oldest_pending?: string;
  commits: number;
  retries: number;
  last_commit?: string;
  last_error?: string;
}

export interface Flow {
  time: string;
  operators: OperatorFlow[] | null;
  tasks: TaskFlow[] | null;
  splits: SplitFlow[] | null;
  sinks: SinkFlow[] | null;
}

export interface Failure {
  time: string;
  operator: string;
  kind: string;
  reason: string;
  topic?: string;
  partition: number;
  offset: number;
  expression?: string;
  outcome: "fail" | "skip" | "dead_letter";
}

export interface Tapped {
  time: string;
  operator: string;
  topic?: string;
  partition: number;
  offset: number;
  key?: string;
  value: string;
  headers?: Record<string, string>;
  event_time?: number;
  left: number;
  cut?: boolean;
}
