import { signal } from "@preact/signals";
import { api, openStream, unauthorized, type Link } from "./api/client";
import type { Checkpoints, Daemon, Event, Flow, Pipeline } from "./api/types";
import { Counter, Series } from "./lib/series";

// What the pages show of the daemon, as it comes in. A page has one stream, which is
// opened when it is entered and closed when it is left.

/** pipelines is undefined until the first answer. */
export const pipelines = signal<Pipeline[] | undefined>(undefined);
export const flow = signal<Flow | undefined>(undefined);
export const checkpoints = signal<Checkpoints | undefined>(undefined);
export const daemon = signal<Daemon | undefined>(undefined);
export const cpu = signal(-1); // cores in use, -1 until known
export const link = signal<Link>({ state: "connecting" });
/** now ticks once a second, for times that are told relative to it. */
export const now = signal(Date.now());

/** newest are the events that came in while the page was open, newest first. */
export const newest = signal<Event[]>([]);

/** Past is what is remembered of a pipeline since the dashboard was opened. */
export interface Past {
  read: Series; // records in a second
  write: Series;
  lag: Series; // records, -1 where not known
}

/** past has the newest numbers of each pipeline, for sparklines and charts. */
export const past = new Map<string, Past>();
const kept = 600;

export interface OperatorRates {
  in: number;
  out: number;
  bytes: number;
  branches: Map<string, number>;
}

/** operatorRates are records in a second, by operator. */
export const operatorRates = signal<Map<string, OperatorRates>>(new Map());

interface Counters {
  in: Counter;
  out: Counter;
  bytes: Counter;
  branches: Map<string, Counter>;
}

let counters = new Map<string, Counters>();
let followed = "";

/** watch follows the daemon, and one pipeline closer where it is named. It returns what ends it. */
export function watch(name: string): () => void {
  if (name !== followed) forget();
  followed = name;
  return openStream({
    path: name ? `/stream?pipeline=${encodeURIComponent(name)}` : "/stream",
    again: true,
    silence: 45_000,
    link: (l) => {
      if (l.state === "refused" && l.status === 401) unauthorized.value = true;
      link.value = l;
    },
    on: ({ event, data }) => {
      if (event === "pipelines") takePipelines(JSON.parse(data) as Pipeline[] | null);
      else if (event === "flow") takeFlow(JSON.parse(data) as Flow);
      else if (event === "checkpoints") checkpoints.value = JSON.parse(data) as Checkpoints;
      else if (event === "event") newest.value = [JSON.parse(data) as Event, ...newest.value].slice(0, 200);
    },
  });
}

function forget(): void {
  flow.value = undefined;
  checkpoints.value = undefined;
  operatorRates.value = new Map();
  counters = new Map();
}

function takePipelines(all: Pipeline[] | null): void {
  const time = Date.now() / 1000;
  for (const p of all ?? []) {
    let series = past.get(p.name);
    if (!series) past.set(p.name, (series = { read: new Series(kept), write: new Series(kept), lag: new Series(kept) }));
    series.read.push(time, p.read_rate);
    series.write.push(time, p.write_rate);
    series.lag.push(time, p.lag_records);
  }
  pipelines.value = all ?? [];
}

function takeFlow(f: Flow): void {
  const time = Date.parse(f.time) / 1000;
  const next = new Map<string, OperatorRates>();
  for (const o of f.operators ?? []) {
    let c = counters.get(o.name);
    if (!c) counters.set(o.name, (c = { in: new Counter(), out: new Counter(), bytes: new Counter(), branches: new Map() }));
    next.set(o.name, { in: c.in.rate(o.in, time), out: c.out.rate(o.out, time), bytes: c.bytes.rate(o.bytes_in, time), branches: branchRates(c.branches, o.branches ?? {}, time) });
  }
  operatorRates.value = next;
  flow.value = f;
}

function branchRates(counters: Map<string, Counter>, counts: Record<string, number>, time: number): Map<string, number> {
  const out = new Map<string, number>();
  for (const [branch, count] of Object.entries(counts)) {
    let c = counters.get(branch);
    if (!c) counters.set(branch, (c = new Counter()));
    out.set(branch, c.rate(count, time));
  }
  return out;
}

/** watchDaemon asks for the process's own numbers every few seconds; the stream has none of them. */
export function watchDaemon(): () => void {
  const abort = new AbortController();
  let before: { time: number; cpu: number } | undefined;
  const ask = async (): Promise<void> => {
    try {
      const d = await api.daemon(abort.signal);
      const time = performance.now() / 1000;
      if (before && time > before.time && d.cpu_seconds >= before.cpu) cpu.value = (d.cpu_seconds - before.cpu) / (time - before.time);
      before = { time, cpu: d.cpu_seconds };
      daemon.value = d;
    } catch {
      // The stream's banner tells of a lost connection.
    }
  };
  void ask();
  const timer = setInterval(() => void ask(), 5000);
  return () => {
    clearInterval(timer);
    abort.abort();
  };
}

setInterval(() => (now.value = Date.now()), 1000);
