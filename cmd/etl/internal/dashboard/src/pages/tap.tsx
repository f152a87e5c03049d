import { useEffect, useRef, useState } from "preact/hooks";
import { api, openStream, type Link } from "../api/client";
import type { Pipeline, Tapped } from "../api/types";
import { clock, compact, full, plural } from "../lib/format";
import { Icon } from "../ui/icon";
import { Card, Copy, Empty, Notice, Scroll } from "../ui/parts";
import { search } from "../ui/router";
import { useResource } from "../ui/use";

interface Shown extends Tapped {
  row: number;
}

const kept = 300;

/** TapTab shows live records of a step: a sample that never holds up the stream. */
export function TapTab({ p }: { p: Pipeline }) {
  const graph = useResource(`graph ${p.name}`, (abort) => api.graph(p.name, abort));
  const operators = graph.value?.operators ?? [];
  const [operator, setOperator] = useState(search.value.get("operator") ?? "");
  const [input, setInput] = useState(false);
  const [perSecond, setPerSecond] = useState(10);
  const [on, setOn] = useState(false);
  const [text, setText] = useState("");
  const chosen = operator || (operators[0]?.name ?? "");
  const tap = useTap(p.name, chosen, input, perSecond, on);
  const shown = tap.records.filter((r) => text === "" || `${r.key ?? ""} ${r.value} ${r.topic ?? ""}/${r.partition}@${r.offset}`.toLowerCase().includes(text.toLowerCase()));
  return (
    <Card
      pad={false}
      testid="tap"
      title="Live records"
      right={
        <>
          <input class="input" type="search" placeholder="Filter" aria-label="Filter records" data-filter value={text} onInput={(e) => setText(e.currentTarget.value)} />
          <button type="button" class="btn small" onClick={tap.clear} disabled={tap.records.length === 0} data-testid="tap-clear">
            Clear
          </button>
          <button type="button" class={`btn small ${on ? "" : "primary"}`} onClick={() => setOn(!on)} disabled={!chosen || (!on && p.state !== "running")} data-testid="tap-toggle">
            <Icon name={on ? "pause" : "run"} />
            {on ? "Pause" : tap.records.length > 0 ? "Go on" : "Start"}
          </button>
        </>
      }
    >
      <div class="body row">
        <label class="row">
          Step
          <select class="input" value={chosen} onChange={(e) => setOperator(e.currentTarget.value)} data-testid="tap-operator">
            {operators.map((o) => (
              <option key={o.name} value={o.name}>
                {o.name} ({o.kind})
              </option>
            ))}
          </select>
        </label>
        <label class="row">
          Show
          <select class="input" value={input ? "in" : "out"} onChange={(e) => setInput(e.currentTarget.value === "in")} data-testid="tap-side">
            <option value="out">what goes out</option>
            <option value="in">what comes in</option>
          </select>
        </label>
        <label class="row">
          At most
          <select class="input" value={String(perSecond)} onChange={(e) => setPerSecond(Number(e.currentTarget.value))}>
            {[1, 10, 50, 200].map((n) => (
              <option key={n} value={n}>
                {n} in a second
              </option>
            ))}
          </select>
        </label>
        <span class="muted" role="status" data-testid="tap-status">
          {statusOf(tap.link, on, tap.records.length, tap.left)}
        </span>
      </div>
      {tap.link.state === "refused" && (
        <div class="body">
          <Notice tone="bad" title={tap.link.why} live />
        </div>
      )}
      {shown.length === 0 ? (
        <Empty title={on ? "Waiting for records" : p.state === "running" ? "Not started" : `The pipeline is ${p.state}: nothing passes`}>
          <p>Records are sampled: the stream is never held up. They are data, and who sees them needs a role for that.</p>
        </Empty>
      ) : (
        <Records shown={shown} />
      )}
    </Card>
  );
}

function statusOf(link: Link, on: boolean, count: number, left: number): string {
  if (!on) return count > 0 ? `${plural(count, "record")}, paused` : "";
  if (link.state === "lost") return `${link.why} Trying again.`;
  if (link.state === "closed") return "The tap has ended.";
  return `${plural(count, "record")} shown, ${compact(left)} left out`;
}

function useTap(name: string, operator: string, input: boolean, perSecond: number, on: boolean) {
  const [records, setRecords] = useState<Shown[]>([]);
  const [link, setLink] = useState<Link>({ state: "closed" });
  const [left, setLeft] = useState(0);
  const next = useRef(0);
  useEffect(() => {
    setRecords([]);
    setLeft(0);
  }, [name, operator, input]);
  useEffect(() => {
    if (!on || !operator) return undefined;
    const query = new URLSearchParams({ operator, per_second: String(perSecond), ...(input ? { input: "true" } : {}) });
    return openStream({
      path: `/pipelines/${encodeURIComponent(name)}/tap?${query.toString()}`,
      again: true,
      silence: 60_000,
      link: setLink,
      on: ({ event, data }) => {
        if (event !== "record") return;
        const record = { ...(JSON.parse(data) as Tapped), row: next.current++ };
        setLeft((n) => n + record.left);
        setRecords((all) => [record, ...all].slice(0, kept));
      },
    });
  }, [name, operator, input, perSecond, on]);
  return { records, link, left, clear: () => (setRecords([]), setLeft(0)) };
}

function Records({ shown }: { shown: Shown[] }) {
  return (
    <Scroll label="Records">
      <table class="records">
        <caption class="visually-hidden">Tapped records, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Passed</th>
            <th scope="col">From</th>
            <th scope="col">Key</th>
            <th scope="col">Value</th>
            <th scope="col" class="num">
              Left out before
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((r) => (
            <tr key={r.row} data-testid="record">
              <td class="mono">{clock(r.time)}</td>
              <td class="mono nowrap">{r.topic && r.partition >= 0 ? `${r.topic}/${r.partition}@${r.offset}` : "–"}</td>
              <td class="mono key" title={r.key}>
                {r.key ?? <span class="muted">–</span>}
              </td>
              <td class="value">
                <details>
                  <summary>
                    {r.value}
                    {r.cut && " …"}
                  </summary>
                  <RecordDetail r={r} />
                </details>
              </td>
              <td class="num">{full(r.left)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function RecordDetail({ r }: { r: Tapped }) {
  return (
    <div class="stack tight">
      <div class="row">
        <Copy text={r.value} label="Copy value" />
        {r.cut && <span class="tone-warn">cut: this is not all of it</span>}
        {r.event_time !== undefined && <span class="muted">event time {new Date(r.event_time).toISOString()}</span>}
      </div>
      <pre>{pretty(r.value)}</pre>
      {r.headers && Object.keys(r.headers).length > 0 && (
        <dl class="kv">
          {Object.entries(r.headers).map(([k, v]) => (
            <>
              <dt>{k}</dt>
              <dd class="mono">{v}</dd>
            </>
          ))}
        </dl>
      )}
    </div>
  );
}

/** pretty lays JSON out where reading and writing it again changes no number. */
function pretty(value: string): string {
  try {
    const parsed: unknown = JSON.parse(value);
    return JSON.stringify(parsed) === value ? JSON.stringify(parsed, null, 2) : value;
  } catch {
    return value;
  }
}
