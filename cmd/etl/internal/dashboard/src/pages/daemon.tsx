import { useState } from "preact/hooks";
import { ApiError, api } from "../api/client";
import type { Reload } from "../api/types";
import { bytes, full, seconds } from "../lib/format";
import { pathOf } from "../lib/route";
import { cpu, daemon, now, pipelines } from "../live";
import { Icon } from "../ui/icon";
import { Card, Empty, Loading, Notice, Scroll, StateBadge, Tile, Time } from "../ui/parts";
import { Link } from "../ui/router";

/** DaemonPage is the process, whether it is ready and why not, and its folder of pipelines. */
export function DaemonPage() {
  const d = daemon.value;
  if (!d) return <Loading what="Waiting for the daemon" />;
  return (
    <div class="stack">
      <div class="head">
        <h1>Daemon</h1>
        <div class="actions">
          <ReloadButton />
        </div>
      </div>
      <dl class="tiles">
        <Tile label="Ready" tone={d.ready ? undefined : "bad"} sub="/readyz">
          {d.ready ? "yes" : "no"}
        </Tile>
        <Tile label="Up" sub={<>since <Time at={d.started} /></>}>
          {seconds(Math.max(0, (now.value - Date.parse(d.started)) / 1000))}
        </Tile>
        <Tile label="Memory" sub={d.memory > 0 ? `budget ${bytes(d.memory)}` : "no budget"}>
          {bytes(d.rss)}
        </Tile>
        <Tile label="Processor" sub={`${seconds(d.cpu_seconds)} in all`}>
          {cpu.value < 0 ? "–" : `${cpu.value.toFixed(2)} cores`}
        </Tile>
        <Tile label="Goroutines">{full(d.goroutines)}</Tile>
        <Tile label="Version" sub={`process ${d.pid}`}>
          {d.version}
        </Tile>
      </dl>
      <div class="grid two">
        <Card title="Addresses">
          <dl class="kv">
            <dt>Folder</dt>
            <dd class="mono">{d.folder ?? "none: it runs what it was started with"}</dd>
            <dt>Listens on</dt>
            <dd class="mono">{(d.listens ?? []).map((l) => <div key={l}>{l}</div>)}</dd>
            <dt>For programs</dt>
            <dd>
              <a href="/openapi.json">OpenAPI</a>, <a href="/metrics">metrics</a>, <a href="/readyz?verbose">readiness</a>
            </dd>
          </dl>
        </Card>
        <Card title="Last reload" testid="last-reload">
          {d.last_reload ? <ReloadView r={d.last_reload} /> : <Empty title="Not reloaded since it began" />}
        </Card>
      </div>
      <Readiness />
    </div>
  );
}

function ReloadView({ r }: { r: Reload }) {
  return (
    <div class="stack tight">
      <Notice tone={r.ok ? "ok" : "bad"} title={r.ok ? "Everything was taken over" : "Not everything was taken over"}>
        <Time at={r.time} />
      </Notice>
      <dl class="kv">
        {Object.entries(r.pipelines ?? {}).map(([name, what]) => (
          <>
            <dt>
              <Link href={pathOf(name)}>{name}</Link>
            </dt>
            <dd class={/^(refused|invalid|rolled back)/.test(what) ? "tone-bad" : ""}>{what}</dd>
          </>
        ))}
      </dl>
    </div>
  );
}

function ReloadButton() {
  const [said, setSaid] = useState<{ reload?: Reload; error?: string; working?: boolean } | undefined>(undefined);
  const reload = async (): Promise<void> => {
    setSaid({ working: true });
    try {
      const r = await api.reload();
      setSaid({ reload: r });
      if (daemon.value) daemon.value = { ...daemon.value, last_reload: r };
    } catch (error) {
      setSaid({ error: error instanceof ApiError ? error.message : String(error) });
    }
  };
  return (
    <>
      <span role="status" class="muted" data-testid="reload-result">
        {said?.working ? "Reading the folder …" : said?.error ? <span class="tone-bad">{said.error}</span> : said?.reload ? (said.reload.ok ? "Taken over" : "Not everything was taken over") : ""}
      </span>
      <button type="button" class="btn" onClick={() => void reload()} disabled={said?.working ?? false} title="Reads the folder again, as SIGHUP does: what changed takes a checkpoint and switches, what did not runs on" data-testid="reload">
        <Icon name="again" /> Reload the folder
      </button>
    </>
  );
}

function Readiness() {
  const all = pipelines.value;
  if (!all || all.length === 0) return null;
  return (
    <Card title="Readiness" pad={false} testid="readiness">
      <Scroll label="Readiness of each pipeline">
        <table>
          <caption class="visually-hidden">Whether each pipeline progresses, and why not</caption>
          <thead>
            <tr>
              <th scope="col">Pipeline</th>
              <th scope="col">State</th>
              <th scope="col">Well</th>
              <th scope="col">Why not</th>
            </tr>
          </thead>
          <tbody>
            {all.map((p) => (
              <tr key={p.name}>
                <th scope="row">
                  <Link href={pathOf(p.name)}>{p.name}</Link>
                </th>
                <td>
                  <StateBadge state={p.state} />
                </td>
                <td class={p.health.ok ? "" : "tone-bad"}>{p.health.ok ? "yes" : "no"}</td>
                <td class="words">{p.health.problems?.map((x) => x.text).join("; ") || (p.health.ok ? "" : p.failure)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}
