import type { Pipeline } from "../api/types";
import { actionsOf, type Action } from "../lib/can";
import { byteRate, bytes, compact, full, plural, rate, seconds } from "../lib/format";
import { pathOf, tabs, type Tab } from "../lib/route";
import { link, pipelines } from "../live";
import { actionTexts, ask } from "../ui/action";
import { Icon } from "../ui/icon";
import { Card, Empty, GuaranteeBadge, Loading, Menu, Notice, ProblemNotice, StateBadge, Tile, Time } from "../ui/parts";
import { Link } from "../ui/router";
import { CheckpointsTab } from "./checkpoints";
import { DefinitionTab } from "./definition";
import { ErrorsTab } from "./errors";
import { EventList } from "./events";
import { LogView } from "./logs";
import { OverviewTab } from "./overview";
import { menuOf, otherProblems, pendingOf } from "./pipelines";
import { SinksTab } from "./sinks";
import { SourcesTab } from "./sources";
import { TapTab } from "./tap";

const titles: Record<Tab, string> = {
  overview: "Overview",
  checkpoints: "Checkpoints",
  sources: "Sources",
  sinks: "Sinks",
  errors: "Errors and dead letters",
  tap: "Tap",
  definition: "Definition",
  events: "Events",
  logs: "Logs",
};

/** PipelinePage is one pipeline, by tabs. */
export function PipelinePage({ name, tab, rest }: { name: string; tab: Tab; rest: string }) {
  const all = pipelines.value;
  const p = all?.find((x) => x.name === name);
  if (!p) {
    const gone = all !== undefined || (link.value.state === "refused" && link.value.status === 404);
    return gone ? <Missing name={name} /> : <Loading what="Waiting for the daemon" />;
  }
  return (
    <div class="stack">
      <Head p={p} />
      <Trouble p={p} />
      <Numbers p={p} />
      <nav class="tabs" aria-label={`Views of ${name}`}>
        {tabs.map((t) => (
          <Link key={t} href={pathOf(name, t)} current={t === tab} data-testid={`tab-${t}`}>
            {titles[t]}
            {t === "checkpoints" && p.failed_checkpoints > 0 && (
              <span class="count" title={`${plural(p.failed_checkpoints, "checkpoint")} failed since the last completed one`}>
                {p.failed_checkpoints}
              </span>
            )}
          </Link>
        ))}
      </nav>
      <Body p={p} tab={tab} rest={rest} />
    </div>
  );
}

function Body({ p, tab, rest }: { p: Pipeline; tab: Tab; rest: string }) {
  switch (tab) {
    case "overview":
      return <OverviewTab p={p} />;
    case "checkpoints":
      return <CheckpointsTab p={p} chosen={rest} />;
    case "sources":
      return <SourcesTab p={p} />;
    case "sinks":
      return <SinksTab p={p} />;
    case "errors":
      return <ErrorsTab p={p} />;
    case "tap":
      return <TapTab p={p} />;
    case "definition":
      return <DefinitionTab p={p} />;
    case "events":
      return <EventList pipeline={p.name} />;
    case "logs":
      return <LogView key={p.name} pipeline={p.name} />;
  }
}

function Missing({ name }: { name: string }) {
  return (
    <Card testid="missing">
      <h1 class="visually-hidden">{name}</h1>
      <Empty title={`This daemon has no pipeline ${name}`}>
        <p>It may have been removed or renamed.</p>
        <Link class="btn" href="/">
          All pipelines
        </Link>
      </Empty>
    </Card>
  );
}

const upFront: readonly Action[] = ["start", "resume", "checkpoint", "savepoint", "pause"];

function Head({ p }: { p: Pipeline }) {
  const shown = actionsOf(p).filter((a) => upFront.includes(a));
  const first = shown[0] === "start" || shown[0] === "resume";
  return (
    <div class="head">
      <div class="grow">
        <h1>
          <Link class="crumb" href="/">
            Pipelines
          </Link>
          {p.name}
          <span role="status">
            <StateBadge state={p.state} />
          </span>
        </h1>
        <p class="muted">
          since <Time at={p.since} />
          {p.status?.job && (
            <>
              {" · job "}
              <span class="mono" title={p.status.job}>
                {p.status.job.slice(0, 12)}
              </span>
            </>
          )}
          {p.status?.generation ? ` · generation ${p.status.generation}` : ""}
        </p>
      </div>
      <div class="actions">
        {shown.map((a, i) => (
          <button key={a} type="button" class={`btn ${first && i === 0 ? "primary" : ""} ${a === "checkpoint" || (a === "savepoint" && !first) ? "narrow-off" : ""}`} onClick={() => ask(a, p)} data-testid={`action-${a}`}>
            <Icon name={actionTexts[a].icon} />
            {actionTexts[a].label}
          </button>
        ))}
        <Menu label={`More actions of ${p.name}`} text="More" items={menuOf(p)} />
      </div>
    </div>
  );
}

function Trouble({ p }: { p: Pipeline }) {
  const problems = otherProblems(p);
  const failure = p.failure ?? "";
  const pending = pendingOf(p);
  if (!failure && problems.length === 0 && !pending) return null;
  return (
    <div class="notices" data-testid="problems">
      {failure && (
        <Notice
          tone={p.state === "restarting" ? "warn" : "bad"}
          title={p.state === "invalid" ? "The file has faults" : p.state === "restarting" ? "It failed, and starts again by itself" : "It failed, and needs a person"}
          testid="failure"
          action={
            p.state !== "invalid" && (
              <Link class="btn small" href={pathOf(p.name, "errors")}>
                Records that failed
              </Link>
            )
          }
        >
          {failure.includes("\n") ? <pre class="text">{failure}</pre> : <p class="text">{failure}</p>}
          {p.help && <p class="help text">{p.help}</p>}
        </Notice>
      )}
      {problems.map((x) => (
        <ProblemNotice key={x.kind + x.text} problem={x} />
      ))}
      {pending && (
        <Notice
          tone="info"
          title={pending}
          testid="pending"
          action={
            <Link class="btn small" href={pathOf(p.name, "definition")}>
              See the change
            </Link>
          }
        />
      )}
    </div>
  );
}

function Numbers({ p }: { p: Pipeline }) {
  const runs = p.state === "running";
  const c = p.checkpoint;
  return (
    <dl class="tiles" data-testid="numbers">
      <Tile label="Read" title={`${full(p.counts.read)} records, ${bytes(p.counts.bytes)} since the daemon began`} sub={runs ? `${byteRate(p.byte_rate)}, ${compact(p.counts.read)} in all` : `${compact(p.counts.read)} in all`}>
        {runs ? rate(p.read_rate) : "–"}
      </Tile>
      <Tile label="Written" title={`${full(p.counts.written)} records since the daemon began`} sub={`${compact(p.counts.written)} in all`}>
        {runs ? rate(p.write_rate) : "–"}
      </Tile>
      <Tile label="Lag" title="Records that are not read yet, and how old the next one is" sub={p.lag_seconds >= 0 ? `next is ${seconds(p.lag_seconds)} old` : "records"}>
        {p.lag_records >= 0 ? compact(p.lag_records) : "–"}
      </Tile>
      <Tile label="Last checkpoint" tone={p.failed_checkpoints > 0 ? "bad" : undefined} sub={p.failed_checkpoints > 0 ? `${plural(p.failed_checkpoints, "failure")} since` : c ? `${seconds(c.duration)}, ${bytes(c.size)}` : ""}>
        {c ? <Time at={c.time} /> : "none"}
      </Tile>
      <Tile label="Restarts" tone={p.restarts > 0 ? "warn" : undefined} sub="of its tasks">
        {full(p.restarts)}
      </Tile>
      <Tile label="Dead letters" tone={p.counts.dead > 0 ? "warn" : undefined} sub={`${compact(p.counts.skipped)} skipped, ${compact(p.counts.late)} late`} title={`${full(p.counts.filtered)} filtered on purpose`}>
        {compact(p.counts.dead)}
      </Tile>
      <Tile label="Guarantee" sub="the weakest of its sinks">
        <GuaranteeBadge guarantee={p.guarantee} />
      </Tile>
    </dl>
  );
}
