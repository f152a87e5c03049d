import type { Pipeline, SplitFlow } from "../api/types";
import { compact, full, plural, rate, seconds } from "../lib/format";
import { flow, operatorRates } from "../live";
import { Card, Empty, Loading, Scroll } from "../ui/parts";
import { Watermark } from "./overview";

/** SourcesTab is where each split of each source is. */
export function SourcesTab({ p }: { p: Pipeline }) {
  const f = flow.value;
  if (!f && p.state === "running") return <Loading what="Waiting for numbers" />;
  const splits = f?.splits ?? [];
  const sources = [...new Set(splits.map((s) => s.source))];
  if (sources.length === 0) {
    return (
      <Card>
        <Empty title="No split is read">
          <p>{p.state === "running" ? "The sources have none yet." : `The pipeline is ${p.state}.`}</p>
        </Empty>
      </Card>
    );
  }
  return (
    <div class="stack">
      {sources.map((name) => (
        <Source key={name} name={name} splits={splits.filter((s) => s.source === name).sort((a, b) => a.split.localeCompare(b.split, "en", { numeric: true }))} />
      ))}
    </div>
  );
}

function Source({ name, splits }: { name: string; splits: SplitFlow[] }) {
  const known = splits.filter((s) => s.behind >= 0);
  const behind = known.reduce((n, s) => n + s.behind, 0);
  const most = Math.max(1, ...known.map((s) => s.behind));
  return (
    <Card
      pad={false}
      title={name}
      testid={`source-${name}`}
      right={
        <span class="muted">
          {plural(splits.length, "split")} · {rate(operatorRates.value.get(name)?.out ?? 0)} · {known.length > 0 ? `${compact(behind)} records behind` : "lag not known"}
        </span>
      }
    >
      <Scroll label={`Splits of ${name}`}>
        <table>
          <caption class="visually-hidden">Splits of {name}: position, lag, retention and watermark</caption>
          <thead>
            <tr>
              <th scope="col">Split</th>
              <th scope="col">State</th>
              <th scope="col" class="num">
                Next position
              </th>
              <th scope="col" class="num">
                Behind
              </th>
              <th scope="col" class="num" title="How old the next record is">
                Age of the next
              </th>
              <th scope="col" class="num" title="Until the topic's retention removes the next record">
                Until removed
              </th>
              <th scope="col" class="num" title="Event time behind the clock">
                Watermark
              </th>
            </tr>
          </thead>
          <tbody>
            {splits.map((s) => (
              <Split key={s.split} s={s} most={most} />
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

/** soon is when a retention is near enough to be marked. */
const soon = 6 * 3600;

function Split({ s, most }: { s: SplitFlow; most: number }) {
  const state = s.paused ? "waits for others" : s.idle ? "idle" : s.caught_up ? "caught up" : "reading";
  const title = s.paused ? "Its event time is ahead of the others by max_drift" : s.idle ? "Nothing came for the idle timeout: its watermark holds nobody up" : "";
  return (
    <tr data-testid={`split-${s.split}`}>
      <th scope="row">{s.split}</th>
      <td>
        <span class={`badge plain ${s.paused ? "warn" : state === "reading" ? "info" : ""}`} title={title}>
          {state}
        </span>
      </td>
      <td class="num">{full(s.position)}</td>
      <td class="num">
        <span class="progress-cell">
          {s.behind > 0 && (
            <span class="share" aria-hidden="true">
              <i style={{ width: `${(s.behind / most) * 100}%` }} />
            </span>
          )}
          {s.behind >= 0 ? full(s.behind) : "–"}
        </span>
      </td>
      <td class="num">{s.behind === 0 ? "–" : seconds(s.behind_seconds)}</td>
      <td class={`num ${s.retention_seconds >= 0 && s.retention_seconds < soon && s.behind > 0 ? "tone-bad" : ""}`}>{s.retention_seconds >= 0 ? seconds(s.retention_seconds) : "–"}</td>
      <td class="num">
        <Watermark at={s.watermark} idle={s.idle} />
      </td>
    </tr>
  );
}
