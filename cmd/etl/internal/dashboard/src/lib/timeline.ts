import type { Attempt, TaskStats } from "../api/types";

// The time line of a checkpoint: for each subtask, what it did from the trigger until it
// acknowledged, and after all of them the metadata and the commits. All in nanoseconds.

export type Part = "delay" | "alignment" | "sync" | "async" | "ack" | "metadata" | "commit";

export interface Bar {
  part: Part;
  from: number;
  to: number;
}

export interface Row {
  label: string;
  chain: string;
  subtask: number; // -1: of the coordinator
  bars: Bar[];
  acked: boolean;
  task?: TaskStats;
}

/** barsOf are the parts of one subtask, one after the other. What is left until the acknowledgement came in is its way. */
export function barsOf(t: TaskStats): Bar[] {
  const bars: Bar[] = [];
  let at = 0;
  for (const [part, length] of [
    ["delay", t.start_delay],
    ["alignment", t.alignment],
    ["sync", t.sync],
    ["async", t.async],
  ] as const) {
    if (length > 0) bars.push({ part, from: at, to: at + length });
    at += Math.max(0, length);
  }
  if (t.acked && t.latency > at) bars.push({ part: "ack", from: at, to: t.latency });
  return bars;
}

/** timeline has a row for each subtask in the given order of chains, and one for the coordinator. */
export function timeline(a: Attempt, order: readonly string[] = []): { rows: Row[]; end: number } {
  const rank = new Map(order.map((name, i) => [name, i]));
  const tasks = [...(a.tasks ?? [])].sort(
    (x, y) =>
      (rank.get(x.task.Chain) ?? order.length) - (rank.get(y.task.Chain) ?? order.length) ||
      x.task.Chain.localeCompare(y.task.Chain) ||
      x.task.Subtask - y.task.Subtask,
  );
  const rows = tasks.map((task): Row => ({ label: `${task.task.Chain} / ${task.task.Subtask}`, chain: task.task.Chain, subtask: task.task.Subtask, bars: barsOf(task), acked: task.acked, task }));
  const acked = Math.max(0, ...tasks.map((t) => t.latency));
  const last: Bar[] = [];
  if (a.metadata > 0) last.push({ part: "metadata", from: acked, to: acked + a.metadata });
  if (a.commit > 0) last.push({ part: "commit", from: acked + a.metadata, to: acked + a.metadata + a.commit });
  if (last.length > 0) rows.push({ label: "coordinator", chain: "", subtask: -1, bars: last, acked: true });
  const end = Math.max(a.duration, 1, ...rows.flatMap((r) => r.bars.map((b) => b.to)));
  return { rows, end };
}

/** ChainTotal is what all subtasks of a chain come to: the slowest of each part, and the sum of sizes. */
export interface ChainTotal {
  chain: string;
  tasks: TaskStats[];
  acked: number;
  latency: number;
  start_delay: number;
  alignment: number;
  sync: number;
  async: number;
  buffered: number;
  size: number;
}

/** byChain adds the rows of the subtasks up. */
export function byChain(rows: readonly Row[]): ChainTotal[] {
  const out = new Map<string, ChainTotal>();
  for (const { task } of rows) {
    if (!task) continue;
    const chain = task.task.Chain;
    const sum = out.get(chain) ?? { chain, tasks: [], acked: 0, latency: 0, start_delay: 0, alignment: 0, sync: 0, async: 0, buffered: 0, size: 0 };
    sum.tasks.push(task);
    sum.acked += task.acked ? 1 : 0;
    for (const key of ["latency", "start_delay", "alignment", "sync", "async"] as const) sum[key] = Math.max(sum[key], task[key]);
    sum.buffered += task.buffered;
    sum.size += task.size;
    out.set(chain, sum);
  }
  return [...out.values()];
}

/** slowest is what took longest of a completed checkpoint, where it is a third of its duration or more. */
export function slowest(a: Attempt): { chain: string; subtask: number; part: Part; length: number } | undefined {
  if (a.status !== "completed") return undefined;
  let best: { chain: string; subtask: number; part: Part; length: number } | undefined;
  for (const t of a.tasks ?? []) {
    for (const [part, length] of [
      ["delay", t.start_delay],
      ["alignment", t.alignment],
      ["sync", t.sync],
      ["async", t.async],
    ] as const) {
      if (!best || length > best.length) best = { chain: t.task.Chain, subtask: t.task.Subtask, part, length };
    }
  }
  return best && a.duration > 0 && best.length >= a.duration / 3 ? best : undefined;
}

/** merge joins what is known of attempts, newest first, each once. */
export function merge(history: readonly Attempt[], earlier: readonly Attempt[]): Attempt[] {
  const seen = new Map<string, Attempt>();
  for (const a of [...history, ...earlier]) {
    const key = `${a.id.generation}/${a.id.number}/${a.triggered}`;
    if (!seen.has(key)) seen.set(key, a);
  }
  return [...seen.values()].sort((x, y) => Date.parse(y.triggered) - Date.parse(x.triggered) || y.id.number - x.id.number);
}
