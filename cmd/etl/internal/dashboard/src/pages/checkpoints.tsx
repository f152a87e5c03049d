import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Attempt, Checkpoints, Pipeline, Savepoint } from "../api/types";
import { actionsOf } from "../lib/can";
import { absolute, bytes, full, nanos, plural, seconds, words } from "../lib/format";
import { pathOf } from "../lib/route";
import { merge } from "../lib/timeline";
import { checkpoints } from "../live";
import { actionTexts, ask } from "../ui/action";
import { Chart } from "../ui/charts";
import { Icon } from "../ui/icon";
import { AttemptBadge, Card, Copy, Empty, Loading, Scroll, Segments, Tile, Time } from "../ui/parts";
import { go } from "../ui/router";
import { useResource, type Resource } from "../ui/use";
import { AttemptDetail } from "./attempt";

/** CheckpointsTab is everything about a pipeline's checkpoints: counts, history, one in detail, savepoints, settings. */
export function CheckpointsTab({ p, chosen }: { p: Pipeline; chosen: string }) {
  // The stream tells what changes; where nothing runs it may tell nothing.
  const once = useResource(`checkpoints ${p.name}`, (abort) => api.checkpoints(p.name, abort));
  const c = checkpoints.value ?? once.value;
  const graph = useResource(`graph ${p.name}`, async (abort) => (p.state === "invalid" ? undefined : api.graph(p.name, abort)), `${p.status?.generation ?? 0} ${p.state === "invalid"}`);
  const all = c ? merge(c.history ?? [], c.earlier ?? []) : [];
  const taken = all.find((a) => a.kind === "savepoint" && a.status === "completed")?.id.number ?? 0;
  const saved = useResource(`savepoints ${p.name}`, (abort) => api.savepoints(p.name, abort), String(taken));
  const can = actionsOf(p);
  if (!c) {
    return once.error ? (
      <Card>
        <Empty title="There are no checkpoints to show">
          <p>{once.error.message}</p>
        </Empty>
      </Card>
    ) : (
      <Loading what="Reading the checkpoints" />
    );
  }
  const number = Number(chosen);
  const shown = chosen ? all.find((a) => a.id.number === number) : all[0];
  return (
    <div class="stack">
      <Counts p={p} c={c} all={all} />
      <Latest p={p} c={c} all={all} saved={saved.value ?? []} />
      {all.length > 0 && <Charts all={all} pick={(n) => go(pathOf(p.name, "checkpoints", String(n)), true)} />}
      <div class="split">
        <History p={p} all={all} shown={shown} triggering={can.includes("checkpoint")} />
        {shown ? <AttemptDetail p={p} attempt={shown} order={graph.value?.operators?.map((o) => o.name) ?? []} /> : <Card title="One checkpoint">{chosen ? <Empty title={`Checkpoint ${chosen} is not in the history`} /> : <Empty title="No checkpoint yet" />}</Card>}
      </div>
      <div class="grid two">
        <Percentiles c={c} />
        <Settings c={c} />
      </div>
      <Savepoints p={p} saved={saved} />
    </div>
  );
}

function Counts({ c, p, all }: { c: Checkpoints; p: Pipeline; all: Attempt[] }) {
  const flying = all.filter((a) => a.status === "in_progress" || a.status === "committing");
  return (
    <dl class="tiles" data-testid="checkpoint-counts">
      <Tile label="Triggered" sub="since its tasks began">
        {full(c.triggered)}
      </Tile>
      <Tile label="In progress" sub={flying[0] ? `${flying[0].acked} of ${flying[0].tasks?.length ?? 0} acknowledged` : "none"}>
        {flying.length}
      </Tile>
      <Tile label="Completed" sub="complete and committed">
        {full(c.completed)}
      </Tile>
      <Tile label="Failed" tone={c.failed_in_a_row > 0 ? "bad" : undefined} sub={c.failed_in_a_row > 0 ? `${c.failed_in_a_row} in a row` : "none in a row"}>
        {full(c.failed)}
      </Tile>
      <Tile label="Subsumed" sub="a later one was first">
        {full(c.subsumed)}
      </Tile>
      <Tile label="Restored" sub={p.status?.restored ? `took ${nanos(p.status.restored.took)}` : "began without state"}>
        {p.status?.restored ? full(p.status.restored.number) : "–"}
      </Tile>
      <Tile label="Late acks" title="Acknowledgements for a checkpoint that was given up" sub={`${full(c.unknown_acks)} unknown`}>
        {full(c.late_acks)}
      </Tile>
      <Tile label="To be removed" tone={c.clean_failures > 0 ? "warn" : undefined} sub={`${plural(c.clean_failures, "failure")}`}>
        {full(c.cleaning)}
      </Tile>
    </dl>
  );
}

function Latest({ p, c, all, saved }: { p: Pipeline; c: Checkpoints; all: Attempt[]; saved: Savepoint[] }) {
  const savepoint = saved.reduce<Savepoint | undefined>((a, b) => (a && a.time > b.time ? a : b), undefined);
  const restored = p.status?.restored;
  return (
    <div class="latest">
      <LatestOne p={p} title="Latest completed" a={c.last ?? all.find((a) => a.status === "completed")} />
      <LatestOne p={p} title="Latest failed" a={all.find((a) => a.status === "failed")} none="None failed" />
      <Card title="Latest savepoint" right={savepoint && <Copy text={savepoint.path} label="Copy path" />}>
        {savepoint ? (
          <dl class="kv">
            <dt>Taken</dt>
            <dd>
              <Time at={savepoint.time} />
            </dd>
            <dt>Size</dt>
            <dd>{bytes(savepoint.size)}</dd>
            <dt>Path</dt>
            <dd class="mono">{savepoint.path}</dd>
          </dl>
        ) : (
          <p class="muted">None taken</p>
        )}
      </Card>
      <Card title="Restored from" right={restored && <Copy text={restored.path} label="Copy path" />}>
        {restored ? (
          <dl class="kv">
            <dt>Number</dt>
            <dd>{restored.number}</dd>
            <dt>Taken</dt>
            <dd>
              <Time at={restored.time} />
            </dd>
            <dt>Start took</dt>
            <dd>{nanos(restored.took)}</dd>
            <dt>Path</dt>
            <dd class="mono">{restored.path}</dd>
          </dl>
        ) : (
          <p class="muted">This start began without state.</p>
        )}
      </Card>
    </div>
  );
}

function LatestOne({ p, title, a, none = "None yet" }: { p: Pipeline; title: string; a: Attempt | undefined; none?: string }) {
  return (
    <Card
      title={title}
      right={
        a && (
          <>
            {p.checkpoint?.number === a.id.number && <Copy text={p.checkpoint.path} label="Copy path" />}
            <button type="button" class="btn small" onClick={() => go(pathOf(p.name, "checkpoints", String(a.id.number)), true)} aria-label={`Checkpoint ${a.id.number} in detail`}>
              {a.id.number}
            </button>
          </>
        )
      }
    >
      {a ? (
        <dl class="kv">
          <dt>Triggered</dt>
          <dd>
            <Time at={a.triggered} />
          </dd>
          <dt>Took</dt>
          <dd>{nanos(a.duration)}</dd>
          {a.failure ? (
            <>
              <dt>Reason</dt>
              <dd class="tone-bad">{a.failure}</dd>
            </>
          ) : (
            <>
              <dt>Size</dt>
              <dd>
                {bytes(a.size)}, {bytes(a.new_size)} of it new
              </dd>
              {p.checkpoint?.number === a.id.number && (
                <>
                  <dt>Path</dt>
                  <dd class="mono">{p.checkpoint.path}</dd>
                </>
              )}
            </>
          )}
        </dl>
      ) : (
        <p class="muted">{none}</p>
      )}
    </Card>
  );
}

function Charts({ all, pick }: { all: Attempt[]; pick: (number: number) => void }) {
  const done = all.filter((a) => a.status === "completed" || a.status === "failed").slice(0, 120).reverse();
  // Numbers may leave gaps, and begin anew with a job: each one has a place of its own.
  const x = done.map((_, i) => i);
  const names = done.map((a) => String(a.id.number));
  const open = (i: number): void => done[i] && pick(done[i].id.number);
  const of = (want: boolean, value: (a: Attempt) => number): (number | null)[] => done.map((a) => ((a.status === "failed") === want ? value(a) : null));
  return (
    <div class="grid two">
      <Card title="Duration" right={<span class="muted">the newest {done.length}, click for one</span>} testid="chart-duration">
        <Chart
          label={`Durations of the newest ${done.length} checkpoints`}
          height={180}
          names={names}
          data={[x, of(false, (a) => a.duration / 1e9), of(true, (a) => a.duration / 1e9)]}
          curves={[
            { label: "Completed", color: "flow", format: seconds, bars: true },
            { label: "Failed", color: "bad", format: seconds, bars: true },
          ]}
          pick={open}
        />
      </Card>
      <Card title="Size" right={<span class="muted">in all, and what is new in it</span>} testid="chart-size">
        <Chart
          label={`Sizes of the newest ${done.length} checkpoints`}
          height={180}
          names={names}
          data={[x, of(false, (a) => a.size), of(false, (a) => a.new_size)]}
          curves={[
            { label: "In all", color: "idle", format: bytes, bars: true, binary: true },
            { label: "New", color: "flow", format: bytes, bars: true, binary: true },
          ]}
          pick={open}
        />
      </Card>
    </div>
  );
}

type Filter = "all" | "completed" | "failed" | "savepoint";

function History({ p, all, shown, triggering }: { p: Pipeline; all: Attempt[]; shown: Attempt | undefined; triggering: boolean }) {
  const [filter, setFilter] = useState<Filter>("all");
  const rows = all.filter((a) => filter === "all" || a.status === filter || a.kind === filter);
  return (
    <Card
      pad={false}
      title="History"
      testid="history"
      right={
        <>
          <Segments
            label="Which"
            value={filter}
            pick={setFilter}
            options={[
              ["all", "All"],
              ["completed", "Completed"],
              ["failed", "Failed"],
              ["savepoint", "Savepoints"],
            ]}
          />
          {triggering && (
            <button type="button" class="btn small" onClick={() => ask("checkpoint", p)} data-testid="trigger">
              <Icon name={actionTexts.checkpoint.icon} /> Trigger
            </button>
          )}
        </>
      }
    >
      {rows.length === 0 ? (
        <Empty title={all.length === 0 ? "No checkpoint yet" : "None fits"} />
      ) : (
        <Scroll label="History of checkpoints" class="tall dense">
          <table>
            <caption class="visually-hidden">Checkpoints, newest first, across restarts</caption>
            <thead>
              <tr>
                <th scope="col">Number</th>
                <th scope="col">Status</th>
                <th scope="col">Acknowledged</th>
                <th scope="col">Triggered</th>
                <th scope="col" class="num">
                  Took
                </th>
                <th scope="col" class="num">
                  Size
                </th>
                <th scope="col" class="num">
                  New
                </th>
                <th scope="col" class="num wide-only" title="Input that was held back while barriers were aligned">
                  Held back
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map((a) => (
                <HistoryRow key={`${a.id.generation}/${a.id.number}/${a.triggered}`} p={p} a={a} selected={a === shown} />
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Card>
  );
}

function HistoryRow({ p, a, selected }: { p: Pipeline; a: Attempt; selected: boolean }) {
  const tasks = a.tasks ?? [];
  const open = (): void => go(pathOf(p.name, "checkpoints", String(a.id.number)), true);
  return (
    <tr class="pick" aria-selected={selected} onClick={open} data-testid={`checkpoint-${a.id.number}`}>
      <th scope="row">
        <button type="button" class="toggle" onClick={(e) => (e.stopPropagation(), open())} aria-label={`Checkpoint ${a.id.number} in detail`}>
          {a.id.number}
        </button>
        {a.kind !== "checkpoint" && <span class="sub">{words(a.kind)}</span>}
      </th>
      <td title={a.failure}>
        <AttemptBadge status={a.status} />
      </td>
      <td>
        <span class="acked">
          {tasks.length > 0 && <progress max={tasks.length} value={a.acked} aria-label={`${a.acked} of ${tasks.length} tasks`} />}
          {tasks.length > 0 ? `${a.acked}/${tasks.length}` : a.acked}
        </span>
      </td>
      <td class="nowrap" title={absolute(a.triggered)}>
        <Time at={a.triggered} />
      </td>
      <td class="num">{nanos(a.duration)}</td>
      <td class="num">{bytes(a.size)}</td>
      <td class="num">{bytes(a.new_size)}</td>
      <td class="num wide-only">{bytes(tasks.reduce((n, t) => n + t.buffered, 0))}</td>
    </tr>
  );
}

const columns: [string, string][] = [
  ["min", "Min"],
  ["avg", "Average"],
  ["p50", "p50"],
  ["p90", "p90"],
  ["p95", "p95"],
  ["p99", "p99"],
  ["p999", "p99.9"],
  ["max", "Max"],
];

function Percentiles({ c }: { c: Checkpoints }) {
  const row = (label: string, values: Record<string, number> | null, format: (n: number) => string) => (
    <tr>
      <th scope="row">{label}</th>
      {columns.map(([key]) => (
        <td key={key} class="num">
          {values?.[key] === undefined ? "–" : format(values[key])}
        </td>
      ))}
    </tr>
  );
  return (
    <Card title="Summary" pad={false} testid="percentiles">
      <Scroll label="Percentiles" class="dense">
        <table>
          <caption class="visually-hidden">Percentiles of the completed checkpoints</caption>
          <thead>
            <tr>
              <th scope="col">Completed ones</th>
              {columns.map(([key, text]) => (
                <th key={key} scope="col" class="num">
                  {text}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {row("Duration", c.duration_percentiles, seconds)}
            {row("Size", c.size_percentiles, bytes)}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

function Settings({ c }: { c: Checkpoints }) {
  return (
    <Card title="Configuration" testid="configuration">
      <dl class="kv">
        <dt>Interval</dt>
        <dd>{c.interval > 0 ? seconds(c.interval) : "only by hand"}</dd>
        <dt>Timeout</dt>
        <dd>{c.timeout > 0 ? seconds(c.timeout) : "–"}</dd>
        <dt>Mode</dt>
        <dd>{c.mode ? words(c.mode) : "–"}</dd>
        <dt>Storage</dt>
        <dd class="mono">{c.storage || "–"}</dd>
        <dt>Retained</dt>
        <dd>{c.retained > 0 ? `the newest ${c.retained}` : "–"}</dd>
      </dl>
    </Card>
  );
}

function Savepoints({ p, saved }: { p: Pipeline; saved: Resource<Savepoint[]> }) {
  const can = actionsOf(p);
  return (
    <Card
      title="Savepoints"
      pad={false}
      testid="savepoints"
      right={
        can.includes("savepoint") && (
          <button type="button" class="btn small" onClick={() => ask("savepoint", p)} data-testid="take-savepoint">
            <Icon name="save" /> Take a savepoint
          </button>
        )
      }
    >
      {saved.error && !saved.value ? (
        <Empty title="The savepoints could not be listed">
          <p>{saved.error.message}</p>
        </Empty>
      ) : !saved.value ? (
        <Loading what="Listing the savepoints" />
      ) : saved.value.length === 0 ? (
        <Empty title="No savepoint">
          <p>One is kept until you remove it, and a later version of the pipeline can start from it.</p>
        </Empty>
      ) : (
        <Scroll label="Savepoints">
          <table>
            <caption class="visually-hidden">Savepoints in the pipeline's folder</caption>
            <thead>
              <tr>
                <th scope="col">Path</th>
                <th scope="col">Taken</th>
                <th scope="col" class="num">
                  Checkpoint
                </th>
                <th scope="col" class="num">
                  Size
                </th>
                <th scope="col">How</th>
                <th scope="col">
                  <span class="visually-hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {saved.value.map((s) => (
                <tr key={s.path} data-testid="savepoint">
                  <th scope="row" class="mono">
                    {s.path}
                  </th>
                  <td>
                    <Time at={s.time} />
                  </td>
                  <td class="num">{s.number}</td>
                  <td class="num">{bytes(s.size)}</td>
                  <td class="nowrap">{[s.periodic ? "periodic" : "by hand", s.drained && "drained"].filter(Boolean).join(", ")}</td>
                  <td class="nowrap num">
                    <Copy text={s.path} label="Copy path" />{" "}
                    {can.includes("start") && (
                      <button type="button" class="btn small" onClick={() => ask("start", p, { from: s.path })}>
                        Start from it
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Card>
  );
}
