import { useMemo, useState } from "preact/hooks";
import { api } from "../api/client";
import type { Description, Operator, Pipeline, Stream } from "../api/types";
import { byteRate, bytes, compact, full, percent, plural, rate, seconds, words } from "../lib/format";
import { curve, flowOf, loadOf, place, type Box, type Layout, type Line, type Load } from "../lib/layout";
import { pathOf } from "../lib/route";
import { flow, now, operatorRates, past, pipelines } from "../live";
import { Chart } from "../ui/charts";
import { Icon } from "../ui/icon";
import { Card, Empty, GuaranteeBadge, Loading, Notice, Path, Scroll, Time } from "../ui/parts";
import { Link } from "../ui/router";
import { useResource, useWidth } from "../ui/use";

/** OverviewTab is the graph of the pipeline with what flows through it. */
export function OverviewTab({ p }: { p: Pipeline }) {
  const invalid = p.state === "invalid";
  const graph = useResource(`graph ${p.name}`, async (abort) => (invalid ? undefined : api.graph(p.name, abort)), `${p.status?.generation ?? 0} ${invalid}`);
  const [chosen, choose] = useState("");
  const operator = graph.value?.operators?.find((o) => o.name === chosen);
  const [box, width] = useWidth<HTMLDivElement>();
  const layout = useMemo(() => (graph.value && width > 0 ? fit(graph.value, width - frame) : undefined), [graph.value, Math.round(width / 20)]);
  if (invalid || (graph.error && !graph.value)) {
    return (
      <Card>
        <Empty title="There is no graph">
          <p>{invalid ? "The file has faults: there is a graph once they are corrected." : graph.error?.message}</p>
        </Empty>
      </Card>
    );
  }
  return (
    <div class="stack" ref={box}>
      {!graph.value && <Loading what="Reading the graph" />}
      {graph.value && layout && <Flow p={p} graph={graph.value} layout={layout} chosen={chosen} choose={choose} operator={operator} />}
      <div class="grid two">
        <Rates name={p.name} />
        {graph.value && <Facts p={p} description={graph.value} />}
      </div>
    </div>
  );
}

/** frame is what the box around the graph takes of its width. */
const frame = 24;

/** Placed is a layout that is as wide as there is room, or goes down. */
type Placed = Layout & { wide: boolean };

function fit(description: Description, width: number): Placed {
  const wide = place(description, "LR");
  return wide.width <= width ? { ...wide, wide: true } : { ...place(description, "TB"), wide: false };
}

function Flow({ p, graph, layout, chosen, choose, operator }: { p: Pipeline; graph: Description; layout: Placed; chosen: string; choose: (name: string) => void; operator: Operator | undefined }) {
  return (
    <div class={`flow-view ${operator && !layout.wide ? "beside" : ""}`}>
      <Graph description={graph} layout={layout} chosen={chosen} choose={(name) => choose(name === chosen ? "" : name)} />
      {operator && <Detail p={p} operator={operator} close={() => choose("")} />}
    </div>
  );
}

function Graph({ description, layout, chosen, choose }: { description: Description; layout: Layout; chosen: string; choose: (name: string) => void }) {
  return (
    <Card
      pad={false}
      title="Graph"
      testid="graph"
      right={
        <div class="legend" aria-hidden="true">
          <span>
            <i class="busy" /> busy
          </span>
          <span>
            <i class="back" /> backpressured
          </span>
          <span>
            <i class="flow" /> flowing
          </span>
          <span>
            <i /> idle
          </span>
        </div>
      }
    >
      <div class="graph-scroll" role="region" aria-label="Graph of the pipeline" tabIndex={0}>
        <div class="graph" style={{ width: `${layout.width}px`, height: `${layout.height}px` }}>
          <svg width={layout.width} height={layout.height} aria-hidden="true">
            {layout.lines.map((l) => (
              <Edge key={l.id} line={l} description={description} />
            ))}
          </svg>
          {layout.lines.map((l) => (
            <EdgeLabel key={l.id} line={l} description={description} />
          ))}
          {layout.boxes.map((b) => (
            <Node key={b.operator.name} box={b} chosen={b.operator.name === chosen} choose={choose} />
          ))}
        </div>
      </div>
    </Card>
  );
}

/** edgeRate is what flows along a line: what its end takes where that has one input, otherwise what its beginning gives out, on that branch. */
function edgeRate(line: Line, description: Description): number {
  const to = description.operators?.find((o) => o.name === line.to);
  const rates = operatorRates.value;
  if ((to?.inputs ?? []).length === 1) return rates.get(line.to)?.in ?? 0;
  const from = rates.get(line.from);
  return from?.branches.get(line.branch) ?? from?.out ?? 0;
}

function loadsOf(line: Line, description: Description): Load {
  return loadOf(flow.value, description.operators?.find((o) => o.name === line.from)?.chain ?? "");
}

function Edge({ line, description }: { line: Line; description: Description }) {
  const moving = edgeRate(line, description) > 0;
  const held = line.exchange !== "chained" && loadsOf(line, description).word === "backpressured";
  const end = line.points[line.points.length - 1]!;
  const before = line.points[line.points.length - 2] ?? end;
  const angle = (Math.atan2(end.y - before.y, end.x - before.x) * 180) / Math.PI;
  const style = `edge ${moving ? "moving" : ""} ${held ? "held" : ""} ${line.exchange === "key" ? "key" : ""}`;
  return (
    <g>
      <path class={style} d={curve(line.points)} />
      <path class={style} d="M-7,-4L0,0L-7,4" transform={`translate(${end.x},${end.y}) rotate(${angle})`} />
    </g>
  );
}

function EdgeLabel({ line, description }: { line: Line; description: Description }) {
  const text = line.exchange === "key" ? `by ${line.key.join(", ")}` : line.branch;
  return (
    <div class="edge-label" style={{ left: `${line.label.x}px`, top: `${line.label.y}px` }} data-testid={`edge-${line.from}-${line.to}`}>
      <span>{flow.value?.operators?.length ? rate(edgeRate(line, description)) : "–"}</span>
      {text && (
        <span class="muted" title={text}>
          {text}
        </span>
      )}
    </div>
  );
}

const signs = { source: "source", step: "step", sink: "sink" } as const;

function Node({ box, chosen, choose }: { box: Box; chosen: boolean; choose: (name: string) => void }) {
  const o = box.operator;
  const numbers = flowOf(flow.value, o.name);
  const rates = operatorRates.value.get(o.name);
  const load = loadOf(flow.value, o.chain, (rates?.in ?? 0) + (rates?.out ?? 0) > 0);
  const errors = Object.values(numbers?.errors ?? {}).reduce((a, b) => a + b, 0);
  const flows = rates ? rate(o.role === "source" ? rates.out : rates.in) : "–";
  return (
    <button
      type="button"
      class={`node ${load.word}`}
      style={{ left: `${box.x}px`, top: `${box.y}px`, width: `${box.width}px`, height: `${box.height}px` }}
      aria-pressed={chosen}
      onClick={() => choose(o.name)}
      data-testid={`node-${o.name}`}
    >
      <span class="title">
        <Icon name={signs[o.role]} />
        <span class="visually-hidden">{o.role} </span>
        <span title={o.name}>{o.name}</span>
      </span>
      <span class="line">
        <span class="muted">
          {o.kind}
          {o.role === "sink" && !o.inputs?.length && ", dead letters"}
          {errors > 0 && <span class="tone-bad"> · {plural(errors, "error")}</span>}
        </span>
        <b>{flows}</b>
      </span>
      <span class="load-part">
        <span class="line muted">
          <span>{load.word ? `${load.word}${load.word === "busy" ? ` ${percent(load.busy)}` : ""}` : "no task"}</span>
          <Watermark at={numbers?.watermark} idle={numbers?.idle ?? false} short />
        </span>
        <LoadBar busy={load.busy} backpressured={load.backpressured} />
      </span>
    </button>
  );
}

function LoadBar({ busy, backpressured }: { busy: number; backpressured: number }) {
  return (
    <span class="load" title={`busy ${percent(busy)}, backpressured ${percent(backpressured)}`}>
      <i class="busy" style={{ width: `${busy * 100}%` }} />
      <i class="back" style={{ width: `${Math.min(1 - busy, backpressured) * 100}%` }} />
    </span>
  );
}

/** Watermark says how far event time is behind the clock. */
export function Watermark({ at, idle, short = false }: { at: number | undefined; idle: boolean; short?: boolean }) {
  if (idle && at === undefined) return <span>idle</span>;
  if (at === undefined) return short ? null : <span class="muted">–</span>;
  if (at > 8e15) return <span title="All input has ended">at its end</span>;
  const behind = Math.max(0, (now.value - at) / 1000);
  return (
    <span title={`Watermark ${new Date(at).toISOString()}, ${seconds(behind)} behind the clock`}>
      −
      {seconds(behind)}
      {idle && " (idle)"}
    </span>
  );
}

function Detail({ p, operator: o, close }: { p: Pipeline; operator: Operator; close: () => void }) {
  const n = flowOf(flow.value, o.name);
  const r = operatorRates.value.get(o.name);
  const load = loadOf(flow.value, o.chain);
  return (
    <Card
      testid="operator"
      title={o.name}
      right={
        <>
          <Link class="btn small" href={`${pathOf(p.name, "tap")}?operator=${encodeURIComponent(o.name)}`} data-testid="operator-tap">
            Tap
          </Link>
          <button type="button" class="btn quiet small icon" onClick={close} aria-label={`Close ${o.name}`}>
            <Icon name="cross" />
          </button>
        </>
      }
    >
      <div class="detail">
        <dl class="kv">
          <dt>{o.role}</dt>
          <dd>
            {o.kind}
            {o.chain && o.chain !== o.name && <span class="muted"> · chained to {o.chain}</span>}
          </dd>
          {o.role !== "source" && (
            <>
              <dt>In</dt>
              <dd>
                {r ? rate(r.in) : "–"} <span class="muted">· {n ? full(n.in) : "–"} records</span>
              </dd>
            </>
          )}
          {o.role !== "sink" && (
            <>
              <dt>Out</dt>
              <dd>
                {r ? rate(r.out) : "–"} <span class="muted">· {n ? full(n.out) : "–"} records</span>
              </dd>
            </>
          )}
          {n && o.role !== "step" && (
            <>
              <dt>Bytes</dt>
              <dd>
                {r ? byteRate(r.bytes) : "–"} <span class="muted">· {bytes(n.bytes_in)}</span>
              </dd>
            </>
          )}
          {n && (n.dropped > 0 || n.late > 0) && (
            <>
              <dt>Left out</dt>
              <dd>
                {full(n.dropped)} on purpose, {full(n.late)} late
              </dd>
            </>
          )}
          {n?.errors && Object.keys(n.errors).length > 0 && (
            <>
              <dt>Errors</dt>
              <dd>
                {Object.entries(n.errors).map(([reason, count]) => (
                  <div key={reason}>
                    <span class="tone-bad">{full(count)}</span> {words(reason)}
                  </div>
                ))}
              </dd>
            </>
          )}
          <dt>Watermark</dt>
          <dd>
            <Watermark at={n?.watermark} idle={n?.idle ?? false} />
          </dd>
          {o.state && (
            <>
              <dt>State</dt>
              <dd>
                {n ? `${compact(n.state_keys)} keys, ${bytes(n.state_memory)} in memory${n.state_disk > 0 ? `, ${bytes(n.state_disk)} on disk` : ""}` : "–"}
                <div class="muted">
                  by {o.state.key?.join(", ") || "nothing"}, backend {o.state.backend}
                </div>
              </dd>
            </>
          )}
          {o.guarantee && (
            <>
              <dt>Guarantee</dt>
              <dd>
                <GuaranteeBadge guarantee={o.guarantee} /> {o.changes && <span class="muted">{o.changes}</span>}
              </dd>
            </>
          )}
        </dl>
        {load.tasks.length > 0 && (
          <div class="stack tight">
            <h3>Subtasks of {o.chain}: busy, backpressured, idle; queue before it</h3>
            <ul class="subtasks">
              {load.tasks.map((t) => (
                <li key={t.subtask} data-testid={`subtask-${t.subtask}`}>
                  <span class="muted">{t.subtask}</span>
                  <LoadBar busy={t.busy} backpressured={t.backpressured} />
                  <span class="nowrap">
                    {percent(t.busy)} · {percent(t.backpressured)} · {percent(t.idle)}
                    {t.queue > 0 && <span class="muted"> · {percent(t.queued / t.queue)} full</span>}
                  </span>
                </li>
              ))}
            </ul>
          </div>
        )}
        <div class="stack">
          {(o.takes ? [o.takes] : (o.outputs ?? [])).map((s) => (
            <Schema key={s.branch ?? ""} stream={s} takes={o.takes !== undefined} />
          ))}
        </div>
      </div>
    </Card>
  );
}

function Schema({ stream: s, takes }: { stream: Stream; takes: boolean }) {
  const fields = s.fields ?? [];
  return (
    <div class="stack tight">
      <h3>
        {takes ? "Takes" : "Gives out"}
        {s.branch ? ` on ${s.branch}` : ""}
        {s.updating ? `, updating${s.key?.length ? ` by ${s.key.join(", ")}` : ""}` : ""}
        {!s.complete && ", and fields that are not known"}
      </h3>
      {fields.length > 0 && (
        <Scroll label="Fields">
          <table>
            <caption class="visually-hidden">Fields and their types</caption>
            <tbody>
              {fields.map((f) => (
                <tr key={f.name}>
                  <th scope="row">{f.name}</th>
                  <td class="mono muted">{f.type}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </div>
  );
}

function Rates({ name }: { name: string }) {
  const p = past.get(name);
  pipelines.value; // a new list brings new values
  const data: [number[], number[], number[]] = p ? [p.read.times.slice(-300), p.read.values.slice(-300), p.write.values.slice(-300)] : [[], [], []];
  return (
    <Card title="Records in a second" right={<span class="muted">since this page was opened</span>}>
      {data[0].length < 2 ? (
        <Loading what="Collecting" />
      ) : (
        <Chart
          label="Records read and written in a second, over time"
          height={190}
          data={data}
          curves={[
            { label: "Read", color: "flow", format: rate, fill: true },
            { label: "Written", color: "ok", format: rate },
          ]}
        />
      )}
    </Card>
  );
}

function Facts({ p, description: d }: { p: Pipeline; description: Description }) {
  const r = p.status?.restored;
  return (
    <Card title="This pipeline">
      <dl class="kv">
        <dt>File</dt>
        <dd class="mono">{p.file ?? "–"}</dd>
        <dt>Parallelism</dt>
        <dd>
          {d.parallelism === 0 ? "one subtask for each core" : plural(d.parallelism, "subtask")}, at most {d.max_parallelism}
        </dd>
        <dt>Barriers</dt>
        <dd>{d.modes_equal ? "no task has several inputs" : words(d.mode)}</dd>
        <dt>Checkpoints</dt>
        <dd class="mono">{p.status?.storage ?? "–"}</dd>
        <dt>Last one</dt>
        <dd>{p.checkpoint ? <Path path={p.checkpoint.path} /> : "none"}</dd>
        <dt>Restored</dt>
        <dd>
          {r ? (
            <>
              from checkpoint {r.number} of <Time at={r.time} />, in {seconds(r.took / 1e9)}
            </>
          ) : (
            "began without state"
          )}
        </dd>
      </dl>
      {p.status?.failure && p.state === "running" && <Notice tone="info" title={`Before this start: ${p.status.failure}`} />}
    </Card>
  );
}
