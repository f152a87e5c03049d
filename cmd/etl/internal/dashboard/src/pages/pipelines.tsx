import { useState } from "preact/hooks";
import type { Pipeline, Problem } from "../api/types";
import { actionsOf } from "../lib/can";
import { bytes, byteRate, compact, full, plural, rate, seconds, words } from "../lib/format";
import { pathOf } from "../lib/route";
import { past, pipelines } from "../live";
import { ask, actionTexts } from "../ui/action";
import { Sparkline } from "../ui/charts";
import { Icon } from "../ui/icon";
import { Card, Empty, GuaranteeBadge, Loading, Menu, Scroll, Segments, StateBadge, Tile, Time, toneOf } from "../ui/parts";
import { Link, go } from "../ui/router";

type Which = "all" | "trouble" | "running" | "still";

/** PipelinesPage is all pipelines at a glance. */
export function PipelinesPage() {
  const [text, setText] = useState("");
  const [pick, setPick] = useState<Which>("all");
  const all = pipelines.value;
  const shown = (all ?? []).filter((p) => p.name.includes(text.trim()) && fits(p, pick));
  return (
    <div class="stack">
      <div class="head">
        <h1>Pipelines</h1>
        <div class="actions">
          <Link class="btn primary" href="/new" data-testid="new">
            New pipeline
          </Link>
        </div>
      </div>
      {!all && <Loading what="Waiting for the daemon" />}
      {all && all.length === 0 && (
        <Card>
          <Empty title="No pipeline yet">
            <p>Put a YAML file into the daemon's folder of pipelines, or write one here.</p>
            <Link class="btn primary" href="/new">
              New pipeline
            </Link>
          </Empty>
        </Card>
      )}
      {all && all.length > 0 && (
        <>
          <Totals all={all} />
          <Card
            pad={false}
            title={shown.length === all.length ? plural(all.length, "pipeline") : `${shown.length} of ${plural(all.length, "pipeline")}`}
            right={
              <>
                <Segments
                  label="Which"
                  value={pick}
                  pick={setPick}
                  options={[
                    ["all", "All"],
                    ["trouble", `Trouble ${all.filter((p) => fits(p, "trouble")).length}`],
                    ["running", "Running"],
                    ["still", "Not running"],
                  ]}
                />
                <input class="input" type="search" placeholder="Filter by name" aria-label="Filter by name" data-filter data-testid="filter" value={text} onInput={(e) => setText(e.currentTarget.value)} />
              </>
            }
          >
            {shown.length === 0 ? <Empty title="No pipeline fits" /> : <List shown={shown} />}
          </Card>
        </>
      )}
    </div>
  );
}

function fits(p: Pipeline, pick: Which): boolean {
  if (pick === "trouble") return !p.health.ok || problemsOf(p).length > 0;
  if (pick === "running") return p.state === "running";
  return pick === "all" || p.state !== "running";
}

/** problemsOf are the pipeline's failure and its problems. */
function problemsOf(p: Pipeline): Trouble[] {
  const out: Trouble[] = [];
  if (p.failure) out.push({ level: "error", text: p.failure, help: p.help });
  out.push(...otherProblems(p));
  const pending = pendingOf(p);
  if (pending) out.push({ level: "info", text: pending });
  return out;
}

/** otherProblems are those that do not only repeat the failure. */
export function otherProblems(p: Pipeline): Problem[] {
  return (p.health.problems ?? []).filter((x) => !p.failure || !x.text.includes(p.failure));
}

/** pendingOf is the change of its file that waits, where the failure does not say it already. */
export function pendingOf(p: Pipeline): string {
  return p.pending && !(p.failure && p.pending.includes(p.failure)) ? p.pending : "";
}

interface Trouble {
  level: Problem["level"];
  text: string;
  help?: string | undefined;
}

function Totals({ all }: { all: Pipeline[] }) {
  const sum = (of: (p: Pipeline) => number): number => all.reduce((n, p) => n + Math.max(0, of(p)), 0);
  const running = all.filter((p) => p.state === "running").length;
  const trouble = all.filter((p) => !p.health.ok).length;
  const lagKnown = all.some((p) => p.lag_records >= 0);
  return (
    <dl class="tiles" data-testid="totals">
      <Tile label="Running" sub={`of ${all.length}`}>
        {running}
      </Tile>
      <Tile label="Not well" tone={trouble > 0 ? "bad" : undefined} sub={trouble > 0 ? "see below" : "all progress"}>
        {trouble}
      </Tile>
      <Tile label="Read" sub={byteRate(sum((p) => p.byte_rate))}>
        {rate(sum((p) => p.read_rate))}
      </Tile>
      <Tile label="Written" sub="records">
        {rate(sum((p) => p.write_rate))}
      </Tile>
      <Tile label="Lag" sub={lagKnown ? "records behind" : "no source tells"}>
        {lagKnown ? compact(sum((p) => p.lag_records)) : "–"}
      </Tile>
      <Tile label="Dead letters" sub="since the daemon began">
        {compact(sum((p) => p.counts.dead))}
      </Tile>
    </dl>
  );
}

function List({ shown }: { shown: Pipeline[] }) {
  return (
    <Scroll label="Pipelines">
      <table class="list">
        <caption class="visually-hidden">All pipelines with their state, rates, lag and last checkpoint</caption>
        <thead>
          <tr>
            <th scope="col">Pipeline</th>
            <th scope="col" class="narrow-off">
              State
            </th>
            <th scope="col" class="num">
              Read
            </th>
            <th scope="col" class="num medium-off">
              Written
            </th>
            <th scope="col" class="num">
              Lag
            </th>
            <th scope="col" class="narrow-off">
              Last checkpoint
            </th>
            <th scope="col" class="num medium-off">
              Restarts
            </th>
            <th scope="col" class="medium-off">
              Guarantee
            </th>
            <th scope="col">
              <span class="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((p) => (
            <Row key={p.name} p={p} />
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Row({ p }: { p: Pipeline }) {
  const problems = problemsOf(p);
  const values = past.get(p.name)?.read.values ?? [];
  return (
    <>
      <tr class={problems.length > 0 ? "has-problem" : ""} data-testid={`pipeline-${p.name}`}>
        <td>
          <Link class="name" href={pathOf(p.name)}>
            {p.name}
          </Link>
          <span class="state-small">
            <StateBadge state={p.state} />
          </span>
        </td>
        <td class="narrow-off">
          <StateBadge state={p.state} />
          <span class="sub">
            <Time at={p.since} />
          </span>
        </td>
        <td class="num">
          <span class="rate">
            {p.state === "running" && <Sparkline values={values} label={`Read rate of ${p.name} since this page was opened`} />}
            <span title={`${full(p.counts.read)} records since the daemon began`}>{p.state === "running" ? rate(p.read_rate) : "–"}</span>
          </span>
        </td>
        <td class="num medium-off" title={`${full(p.counts.written)} records since the daemon began`}>
          {p.state === "running" ? rate(p.write_rate) : "–"}
        </td>
        <td class="num">
          <Lag p={p} />
        </td>
        <td class="narrow-off nowrap">
          <LastCheckpoint p={p} />
        </td>
        <td class={`num medium-off ${p.restarts > 0 ? "tone-warn" : ""}`}>{full(p.restarts)}</td>
        <td class="medium-off">
          <GuaranteeBadge guarantee={p.guarantee} />
        </td>
        <td class="num">
          <Menu small label={`Actions of ${p.name}`} items={menuOf(p)} />
        </td>
      </tr>
      {problems.length > 0 && (
        <tr class="problem">
          <td colSpan={9}>
            <ul data-testid={`problems-${p.name}`}>
              {problems.map((x) => (
                <li key={x.text}>
                  <span class={`tone-${toneOf(x.level)}`}>
                    <Icon name={x.level === "error" ? "error" : x.level === "warning" ? "warn" : "info"} />
                  </span>
                  <span>
                    {x.text.includes("\n") ? <pre>{x.text}</pre> : x.text} {x.help && <span class="muted">{x.help}</span>}
                  </span>
                </li>
              ))}
            </ul>
          </td>
        </tr>
      )}
    </>
  );
}

function Lag({ p }: { p: Pipeline }) {
  if (p.lag_records < 0 && p.lag_seconds < 0) return <span class="muted">–</span>;
  return (
    <>
      {p.lag_records >= 0 ? <span title={`${full(p.lag_records)} records not read yet`}>{compact(p.lag_records)}</span> : "–"}
      {p.lag_seconds >= 0 && (
        <span class="sub" title="How old the record is that is read next">
          {seconds(p.lag_seconds)}
        </span>
      )}
    </>
  );
}

/** LastCheckpoint is the newest completed one, and how many failed since. */
export function LastCheckpoint({ p }: { p: Pipeline }) {
  const c = p.checkpoint;
  return (
    <>
      {c ? (
        <Link href={pathOf(p.name, "checkpoints", String(c.number))} title={`Checkpoint ${c.number}: ${c.path}`}>
          <Time at={c.time} />
        </Link>
      ) : (
        <span class="muted">none yet</span>
      )}
      <span class="sub">
        {p.failed_checkpoints > 0 ? <span class="tone-bad">{plural(p.failed_checkpoints, "failure")} since</span> : c ? `${seconds(c.duration)}, ${bytes(c.size)}` : ""}
      </span>
    </>
  );
}

/** menuOf are the actions that the pipeline's state allows. */
export function menuOf(p: Pipeline, without: readonly string[] = []) {
  return [
    ...actionsOf(p)
      .filter((a) => !without.includes(a))
      .map((a) => ({ label: words(actionTexts[a].label) + (a === "checkpoint" || a === "savepoint" ? "" : " …"), icon: actionTexts[a].icon, bad: actionTexts[a].danger ?? false, testid: `action-${a}`, pick: () => ask(a, p) })),
    { label: "Edit definition", icon: "edit" as const, bad: false, testid: "action-edit", pick: () => go(pathOf(p.name, "definition")) },
  ];
}
