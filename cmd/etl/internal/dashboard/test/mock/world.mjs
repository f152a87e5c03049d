// A daemon that is made up: several pipelines with what can go wrong in them, whose
// numbers move. For work on the pages without brokers.

const s = 1e9; // ns
const ms = 1e6;
const iso = (msAgo = 0) => new Date(Date.now() - msAgo).toISOString();
const chance = (a, b) => a + Math.random() * (b - a);

const hot = `# Auctions with many bids, in windows of ten seconds.
pipeline: hot-items
parallelism: 4
source:
  kafka: {brokers: ["\${KAFKA_BROKERS:-localhost:9092}"], topics: [bid]}
  timestamp: date_time
transforms:
  - filter: price > 100
  - set: {price_eur: price * 0.908}
  - name: by-country
    route: {europe: 'country in ["DE", "FR"]', else: other}
  - name: per-item
    from: by-country.europe
    aggregate:
      by: [auction]
      window: {tumbling: 10s}
      select: {bids: count(), top: max(price_eur)}
on_error: {dead_letter: refused}
sinks:
  hot-items:
    from: per-item
    kafka: {brokers: [localhost:9092], topic: hot-items, key: string(auction)}
  others:
    from: by-country.other
    file: {path: "s3://lake/bids", roll: {size: 128MiB, age: 1m}}
  refused:
    file: {path: "s3://lake/bids-refused"}
checkpoint: {storage: "s3://checkpoints/etl", interval: 10s}
`;

const fields = [
  { name: "auction", type: "int" },
  { name: "bidder", type: "int" },
  { name: "price", type: "int" },
  { name: "country", type: "string?" },
  { name: "date_time", type: "timestamp" },
];
const stream = (branch, extra = []) => ({ ...(branch ? { branch } : {}), fields: [...fields, ...extra], complete: false, updating: false });

const hotGraph = {
  pipeline: "hot-items",
  parallelism: 4,
  max_parallelism: 128,
  mode: "aligned",
  modes_equal: false,
  operators: [
    { name: "bid", role: "source", kind: "kafka", chain: "bid", outputs: [stream()] },
    { name: "filter-1", role: "step", kind: "filter", chain: "bid", inputs: [{ from: "bid", exchange: "chained" }], outputs: [stream()] },
    { name: "set-2", role: "step", kind: "set", chain: "bid", inputs: [{ from: "filter-1", exchange: "chained" }], outputs: [stream("", [{ name: "price_eur", type: "float" }])] },
    { name: "by-country", role: "step", kind: "route", chain: "bid", inputs: [{ from: "set-2", exchange: "chained" }], outputs: [stream("europe"), stream("other")] },
    { name: "per-item", role: "step", kind: "aggregate", chain: "per-item", inputs: [{ from: "by-country.europe", exchange: "key", key: ["auction"] }], state: { key: ["auction"], backend: "memory" },
      outputs: [{ fields: [{ name: "auction", type: "int" }, { name: "bids", type: "int" }, { name: "top", type: "float?" }, { name: "window_start", type: "int" }, { name: "window_end", type: "int" }], complete: true, updating: false }] },
    { name: "hot-items", role: "sink", kind: "kafka", chain: "per-item", inputs: [{ from: "per-item", exchange: "chained" }], guarantee: "exactly_once", takes: stream() },
    { name: "others", role: "sink", kind: "file", chain: "others", inputs: [{ from: "by-country.other", exchange: "forward" }], guarantee: "exactly_once", takes: stream() },
    { name: "refused", role: "sink", kind: "file", chain: "", guarantee: "exactly_once" },
  ],
};

const simpleGraph = (name, source, sink) => ({
  pipeline: name,
  parallelism: 2,
  max_parallelism: 128,
  mode: "aligned",
  modes_equal: true,
  operators: [
    { name: source, role: "source", kind: "kafka", chain: source, outputs: [stream()] },
    { name: "with-tax", role: "step", kind: "set", chain: source, inputs: [{ from: source, exchange: "chained" }], outputs: [stream("", [{ name: "total", type: "decimal" }])] },
    { name: sink, role: "sink", kind: sink === "ledger" ? "postgres" : "file", chain: source, inputs: [{ from: "with-tax", exchange: "chained" }], guarantee: sink === "ledger" ? "exactly_once" : "at_least_once", takes: stream() },
  ],
});

const shapes = [
  { name: "hot-items", state: "running", rate: 48200, graph: hotGraph, definition: hot, size: 214e6, slow: true },
  { name: "orders-to-files", state: "running", rate: 1240, graph: simpleGraph("orders-to-files", "orders", "orders-files"), size: 41e3 },
  { name: "ledger-postgres", state: "running", rate: 310, graph: simpleGraph("ledger-postgres", "payments", "ledger"), size: 18e3,
    problems: [
      { kind: "checkpoint", level: "error", text: "the last 4 checkpoints failed: write s3://checkpoints/etl/ledger-postgres/job-7f/chk-811: no space left in the bucket (QuotaExceeded)", help: "Make room in the bucket or raise its quota; the pipeline goes on, and a restart would read again from 3 minutes ago.", since: iso(180e3) },
      { kind: "lag", level: "warning", text: "lag of payments grew from 1 200 to 48 000 records in 5 minutes", help: "The sink ledger is busy all the time: raise parallelism or the batch of postgres.", step: "ledger", since: iso(300e3) },
    ], failedCheckpoints: 4 },
  { name: "clicks", state: "failed", rate: 0, graph: simpleGraph("clicks", "clicks", "clicks-files"), size: 12e3,
    failure: "step with-tax: clicks/3@1183402: amount * 1.19: cannot multiply text \"12,50\" by a number", help: "Correct the expression, or go on behind this record: etl skip clicks clicks/3@1183402, or on_error: skip." },
  { name: "sensors", state: "restarting", rate: 0, graph: simpleGraph("sensors", "sensors", "sensor-files"), size: 9e3,
    failure: "source sensors: no broker of localhost:9092 answers: dial tcp 127.0.0.1:9092: connect: connection refused", help: "Start the broker or correct brokers. The pipeline tries again by itself, next in 8 s.",
    problems: [{ kind: "broker", level: "error", text: "no broker of localhost:9092 answers", help: "Start the broker or correct brokers in sensors.yaml.", step: "sensors", since: iso(45e3) }] },
  { name: "payroll-v2", state: "paused", rate: 0, graph: simpleGraph("payroll-v2", "payroll", "payroll-files"), size: 3e3, pending: "payroll-v2.yaml was changed at 11:02: it is taken over when the pipeline is resumed" },
  { name: "backfill-2025", state: "finished", rate: 0, graph: simpleGraph("backfill-2025", "archive", "archive-files"), size: 3e3 },
  { name: "returns", state: "invalid", rate: 0, graph: null, size: 0, failure: "error[E0103] pipelines/returns.yaml:7:3: unknown field \"intervall\" in checkpoint\n  6 | checkpoint:\n  7 |   intervall: 10s\n    |   ^^^^^^^^^ did you mean interval?", help: "Correct the file; it is read again when it is saved." },
];

export class World {
  constructor() {
    this.started = Date.now() - 3 * 3600e3;
    this.events = [];
    this.logs = [];
    this.eventNumber = 0;
    this.lineNumber = 0;
    this.cpu = 812;
    this.pipelines = shapes.map((shape, i) => this.make(shape, i));
    for (let i = 0; i < 40; i++) this.tick(40 - i);
    setInterval(() => this.tick(0), 1000).unref();
  }

  make(shape, i) {
    const p = {
      shape,
      state: shape.state,
      since: Date.now() - (i + 1) * 731e3,
      read: 5e6 + i * 71234,
      rate: shape.rate,
      restarts: { restarting: 3, failed: 1 }[shape.state] ?? 0,
      lag: shape.problems?.some((x) => x.kind === "lag") ? 48000 : 900,
      attempts: [],
      earlier: [],
      number: 840,
      seconds: i * 3,
      failures: [],
      completed: 0,
      failedCount: 0,
    };
    if (shape.graph) {
      for (let n = 60; n > 0; n--) p.earlier.unshift(this.attempt(p, 780 - n + 60, Date.now() - 7200e3 - n * 10e3, n % 17 === 0 ? "failed" : "completed", 3));
      for (let n = 30; n > 0; n--) this.push(p, this.attempt(p, 840 - n, Date.now() - n * 10e3 - 45e3, n % 11 === 4 || (shape.failedCheckpoints && n <= 4) ? "failed" : n % 9 === 0 ? "savepoint" : "completed", 4));
    }
    return p;
  }

  push(p, a) {
    p.attempts.unshift(a);
    if (p.attempts.length > 60) p.attempts.pop();
    if (a.status === "completed") p.completed++;
    if (a.status === "failed") p.failedCount++;
  }

  attempt(p, number, time, how, generation) {
    const chains = [...new Set((p.shape.graph?.operators ?? []).map((o) => o.chain).filter(Boolean))];
    const slow = p.shape.slow;
    const tasks = chains.flatMap((chain) =>
      Array.from({ length: p.shape.graph.parallelism }, (_, i) => {
        const held = slow && chain === "per-item" && i === 2;
        const delay = chance(1, 9) * ms;
        const alignment = chain === chains[0] ? 0 : held ? chance(900, 1600) * ms : chance(2, 60) * ms;
        const sync = chance(0.1, 3) * ms;
        const async_ = chain === "per-item" ? chance(120, 420) * ms : chance(8, 40) * ms;
        const acked = how !== "failed" || !(i === 1 && chain === chains[chains.length - 1]);
        const size = chain === "per-item" ? p.shape.size / 4 : 4200 + i * 300;
        return { task: { Chain: chain, Subtask: i }, acked, latency: acked ? delay + alignment + sync + async_ + chance(0.2, 2) * ms : 0, start_delay: acked ? delay : 0, alignment: acked ? alignment : 0, sync: acked ? sync : 0, async: acked ? async_ : 0, buffered: held ? Math.round(chance(3e6, 9e6)) : 0, size: acked ? Math.round(size) : 0 };
      }),
    );
    const longest = Math.max(...tasks.map((t) => t.latency));
    const metadata = chance(4, 20) * ms;
    const commit = chance(20, 90) * ms;
    const status = how === "savepoint" ? "completed" : how;
    return {
      id: { generation, number },
      kind: how === "savepoint" ? "savepoint" : "checkpoint",
      status,
      triggered: new Date(time).toISOString(),
      duration: Math.round(status === "failed" ? 10 * s : longest + metadata + commit),
      metadata: status === "failed" ? 0 : Math.round(metadata),
      commit: status === "failed" ? 0 : Math.round(commit),
      size: tasks.reduce((sum, t) => sum + t.size, 0),
      new_size: Math.round(tasks.reduce((sum, t) => sum + t.size, 0) * chance(0.05, 0.2)),
      acked: tasks.filter((t) => t.acked).length,
      tasks: tasks.map((t) => ({ ...t, latency: Math.round(t.latency), start_delay: Math.round(t.start_delay), alignment: Math.round(t.alignment), sync: Math.round(t.sync), async: Math.round(t.async) })),
      ...(status === "failed" ? { failure: p.shape.failedCheckpoints ? "write s3://checkpoints/etl/" + p.shape.name + "/chk-" + number + "/_metadata: no space left in the bucket (QuotaExceeded)" : "not all tasks acknowledged within checkpoint.timeout (10s): " + chains[chains.length - 1] + " / 1 had not" } : {}),
    };
  }

  event(pipeline, kind, level, text, actor = "", at = Date.now()) {
    const e = { number: ++this.eventNumber, time: new Date(at).toISOString(), pipeline, kind, level, text, ...(actor ? { actor } : {}) };
    this.events.push(e);
    this.line(pipeline, level === "warning" ? "WARN" : level.toUpperCase(), text, actor ? { actor } : {}, at);
    return e;
  }

  line(pipeline, level, text, attrs, at = Date.now()) {
    this.logs.push({ number: ++this.lineNumber, time: new Date(at).toISOString(), level, pipeline, text, attrs });
  }

  tick(back) {
    const at = Date.now() - back * 1000;
    this.cpu += chance(0.05, 0.4);
    for (const p of this.pipelines) {
      p.seconds++;
      if (p.state === "stopping" && p.seconds > 3) this.set(p, p.next ?? "stopped");
      if (p.state === "starting" && p.seconds > 2) this.set(p, "running");
      if (p.state === "restarting" && p.shape.state !== "restarting" && p.seconds > 2) this.set(p, "running");
      if (p.state === "restarting" && p.seconds % 20 === 0) {
        p.restarts++;
        this.event(p.shape.name, "restarting", "warning", `starts again in 8 s (restart ${p.restarts}): ${p.shape.failure ?? "asked to"}`, "", at);
      }
      if (p.state !== "running") { p.rate = 0; continue; }
      const target = p.shape.rate || 400;
      p.rate = Math.max(0, p.rate + (target - p.rate) * 0.3 + chance(-0.12, 0.12) * target);
      p.read += p.rate;
      p.lag = Math.max(0, p.lag + chance(-0.06, 0.06) * p.rate + (p.shape.failedCheckpoints ? 9 : 0));
      if (p.seconds % 10 === 0) {
        p.pendingAttempt = this.attempt(p, ++p.number, at, p.shape.failedCheckpoints ? "failed" : "completed", 4);
        p.pendingAt = at;
      }
      if (p.pendingAttempt && (back > 0 || at - p.pendingAt > Math.max(2500, p.pendingAttempt.duration / ms))) {
        const a = p.pendingAttempt;
        this.push(p, a);
        p.pendingAttempt = undefined;
        if (a.status === "failed") this.event(p.shape.name, "checkpoint_failed", "error", `checkpoint ${a.id.number} failed: ${a.failure}`, "", at);
        else this.line(p.shape.name, "INFO", "checkpoint completed", { checkpoint: a.id.number, size: a.size, took: `${Math.round(a.duration / ms)}ms` }, at);
      }
      if (p.shape.slow && p.seconds % 5 === 0) {
        p.failures.unshift({ time: new Date(at).toISOString(), operator: "set-2", kind: "set", reason: "cannot multiply null by a number", topic: "bid", partition: p.seconds % 8, offset: Math.round(p.read / 8), expression: "price * 0.908", outcome: "dead_letter" });
        p.failures.length = Math.min(p.failures.length, 100);
      }
    }
  }

  set(p, state) {
    p.state = state;
    p.since = Date.now();
    p.seconds = 0;
    p.next = undefined;
  }

  find(name) {
    return this.pipelines.find((p) => p.shape.name === name);
  }

  pipeline(p) {
    const last = p.attempts.find((a) => a.status === "completed");
    const problems = p.state === p.shape.state ? p.shape.problems ?? [] : [];
    const known = p.shape.graph !== null;
    return {
      name: p.shape.name,
      file: `/etc/etl/pipelines/${p.shape.name}.yaml`,
      state: p.state,
      since: new Date(p.since).toISOString(),
      ...(known ? { status: { pipeline: p.shape.name, job: "job-7f3a91c2", generation: 4, storage: "s3://checkpoints/etl", phase: p.state === "running" ? "running" : "ended", since: new Date(p.since).toISOString(), restarts: p.restarts,
        last_checkpoint: this.path(p, last?.id.number ?? 0), restored: { path: this.path(p, 780), number: 780, time: iso(7150e3), took: 1.84 * s } } } : {}),
      ...(p.state === p.shape.state && p.shape.failure ? { failure: p.shape.failure, help: p.shape.help } : {}),
      health: { ok: !["failed", "invalid", "restarting"].includes(p.state) && !problems.some((x) => x.level === "error"), problems },
      read_rate: p.rate,
      byte_rate: p.rate * 212,
      write_rate: p.rate * 0.41,
      lag_records: p.state === "running" ? Math.round(p.lag) : p.state === "failed" ? 9120 : -1,
      lag_seconds: p.state === "running" ? p.lag / Math.max(1, p.shape.rate) : -1,
      counts: { read: Math.round(p.read), bytes: Math.round(p.read * 212), written: Math.round(p.read * 0.41), filtered: Math.round(p.read * 0.5), skipped: 0, dead: p.failures.length, late: p.shape.slow ? 31 : 0 },
      ...(last ? { checkpoint: { number: last.id.number, path: this.path(p, last.id.number), time: last.triggered, duration: last.duration / s, size: last.size, new_size: last.new_size } } : {}),
      failed_checkpoints: p.state === "running" ? p.shape.failedCheckpoints ?? 0 : 0,
      restarts: p.restarts,
      guarantee: known ? p.shape.graph.operators.find((o) => o.role === "sink").guarantee : "",
      ...(p.shape.pending && p.state === "paused" ? { pending: p.shape.pending } : {}),
    };
  }

  path(p, number) {
    return `s3://checkpoints/etl/${p.shape.name}/job-7f3a91c2/chk-${number}`;
  }

  flow(p) {
    const operators = p.shape.graph?.operators ?? [];
    if (p.state !== "running") return { time: iso(), operators: [], tasks: [], splits: [], sinks: [] };
    const parallelism = p.shape.graph.parallelism;
    const chains = [...new Set(operators.map((o) => o.chain).filter(Boolean))];
    const share = { "bid": 1, "filter-1": 1, "set-2": 0.52, "by-country": 0.52, "per-item": 0.34, "hot-items": 0.03, "others": 0.18, "refused": 0.0001 };
    const wm = Date.now() - 4200;
    return {
      time: iso(),
      operators: operators.map((o) => ({
        name: o.name,
        in: Math.round(p.read * (share[o.name] ?? 1)),
        out: o.role === "sink" ? 0 : Math.round(p.read * (share[operators[operators.indexOf(o) + 1]?.name] ?? 1)),
        bytes_in: o.role === "step" ? 0 : Math.round(p.read * 212 * (share[o.name] ?? 1)),
        ...(o.name === "set-2" ? { errors: { "null operand": p.failures.length } } : {}),
        dropped: o.kind === "filter" ? Math.round(p.read * 0.48) : 0,
        late: o.name === "per-item" ? 31 : 0,
        ...(p.shape.slow ? { watermark: wm } : {}),
        idle: false,
        state_keys: o.state ? 1_204_331 : 0,
        state_memory: o.state ? 214e6 : 0,
        state_disk: 0,
      })),
      tasks: chains.flatMap((chain) => Array.from({ length: parallelism }, (_, i) => {
        const busy = p.shape.slow ? (chain === "per-item" ? (i === 2 ? 0.97 : 0.55) : chain === "bid" ? 0.35 : 0.12) : chain === "payments" ? 0.93 : 0.08;
        const back = p.shape.slow && chain === "bid" ? 0.58 : 0;
        const b = Math.min(1, Math.max(0, busy + chance(-0.03, 0.02)));
        return { chain, subtask: i, busy: b, backpressured: back, idle: Math.max(0, 1 - b - back), queued: chain === "per-item" ? Math.round(i === 2 ? 7.2e6 : 4e5) : 0, queue: chain === "per-item" ? 8e6 : 0 };
      })),
      splits: operators.filter((o) => o.role === "source").flatMap((o) => Array.from({ length: p.shape.slow ? 8 : 4 }, (_, i) => ({
        source: o.name, split: `${o.name}/${i}`, position: Math.round(p.read / 8) + i * 1000, behind: i === 5 ? 0 : Math.round((p.lag / 4) * (i === 2 ? 3 : 0.7)), behind_seconds: i === 5 ? 0 : chance(0.2, 3) * (i === 2 ? 8 : 1),
        retention_seconds: i === 2 ? 5400 : 604000, ...(p.shape.slow ? { watermark: wm + i * 130 } : {}), idle: i === 5, caught_up: i === 5, paused: p.shape.slow && i === 7,
      }))),
      sinks: operators.filter((o) => o.role === "sink").map((o, i) => ({
        sink: o.name, guarantee: o.guarantee, pending: o.kind === "kafka" ? 4 : i, ...(o.kind === "kafka" || i ? { oldest_pending: iso(6300) } : {}), commits: p.completed * 4, retries: p.shape.failedCheckpoints ? 17 : 0, last_commit: iso(5100),
        ...(p.shape.failedCheckpoints ? { last_error: "commit of payments-ledger-tx-811: server closed the connection unexpectedly" } : {}),
      })),
    };
  }

  checkpoints(p) {
    const running = p.pendingAttempt;
    const since = running ? (Date.now() - p.pendingAt) * ms : 0;
    const inFlight = running ? [{ ...running, status: "in_progress", duration: since, metadata: 0, commit: 0, failure: undefined, tasks: running.tasks.map((t) => (t.acked && t.latency <= since ? t : { ...t, acked: false, latency: 0, start_delay: 0, alignment: 0, sync: 0, async: 0, size: 0 })), acked: running.tasks.filter((t) => t.acked && t.latency <= since).length }] : [];
    const done = p.attempts.filter((a) => a.status === "completed");
    const pick = (key, unit) => {
      const v = [...done, ...p.earlier.filter((a) => a.status === "completed")].map((a) => a[key] / unit).sort((a, b) => a - b);
      if (v.length === 0) return {};
      const at = (q) => v[Math.min(v.length - 1, Math.ceil(q * v.length) - 1)];
      return { min: v[0], avg: v.reduce((a, b) => a + b, 0) / v.length, p50: at(0.5), p90: at(0.9), p95: at(0.95), p99: at(0.99), p999: at(0.999), max: v[v.length - 1] };
    };
    return {
      triggered: p.completed + p.failedCount + inFlight.length, completed: p.completed, failed: p.failedCount, subsumed: 1, failed_in_a_row: p.shape.failedCheckpoints ?? 0, late_acks: 2, unknown_acks: 0, cleaning: 1, clean_failures: 0,
      last: done[0], history: [...inFlight, ...p.attempts], earlier: p.earlier,
      duration_percentiles: pick("duration", s), size_percentiles: pick("size", 1), interval: 10, timeout: 10, mode: "aligned", storage: "s3://checkpoints/etl", retained: 3,
    };
  }

  tapped(p, operator) {
    return {
      time: iso(), operator, topic: "bid", partition: Math.floor(chance(0, 8)), offset: Math.round(p.read / 8), key: String(Math.floor(chance(1000, 1100))),
      value: JSON.stringify({ auction: Math.floor(chance(1000, 1100)), bidder: Math.floor(chance(1, 9000)), price: Math.floor(chance(101, 90000)), country: ["DE", "FR", "US", "JP"][Math.floor(chance(0, 4))], date_time: iso(), channel: "Google", url: "https://www.example.com/item.htm?query=1" }),
      headers: { trace: Math.random().toString(16).slice(2) }, event_time: Date.now() - 300, left: Math.floor(chance(0, 4000)),
    };
  }

  definition(p) {
    const text = p.shape.definition ?? `pipeline: ${p.shape.name}\nsource:\n  kafka: {brokers: [localhost:9092], topics: [orders]}\ntransforms:\n  - name: with-tax\n    set: {total: amount * 1.19}\nsink:\n  file: {path: /var/lib/etl/orders}\ncheckpoint: {storage: "s3://checkpoints/etl", interval: 10s}\n`;
    return {
      file: `/etc/etl/pipelines/${p.shape.name}.yaml`,
      written: text,
      effective: text.replace('"${KAFKA_BROKERS:-localhost:9092}"', "localhost:9092") + "password: ***\n",
      ...(p.shape.pending ? { running: text.replace("1.19", "1.16") } : {}),
      ...(p.state === "invalid" ? { faults: p.shape.failure } : {}),
    };
  }

  daemon() {
    return { version: "1.0.0-rc1", pid: 4211, started: new Date(this.started).toISOString(), folder: "/etc/etl/pipelines", listens: ["http://127.0.0.1:7070", "unix:/run/etl/etl.sock"], ready: false, memory: 2 * 2 ** 30, rss: 418e6, cpu_seconds: this.cpu, goroutines: 412,
      last_reload: { time: iso(620e3), ok: false, pipelines: { "hot-items": "unchanged", returns: "refused: pipelines/returns.yaml:7:3: unknown field \"intervall\" in checkpoint", "payroll-v2": "switched" } } };
  }
}
