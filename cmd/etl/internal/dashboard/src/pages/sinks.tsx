import type { Pipeline, SinkFlow } from "../api/types";
import { full, plural, rate } from "../lib/format";
import { flow, operatorRates } from "../live";
import { Card, Empty, GuaranteeBadge, Loading, Notice, Tile, Time } from "../ui/parts";

/** SinksTab is what each sink has published, and what waits to be. */
export function SinksTab({ p }: { p: Pipeline }) {
  const f = flow.value;
  if (!f && p.state === "running") return <Loading what="Waiting for numbers" />;
  const sinks = f?.sinks ?? [];
  if (sinks.length === 0) {
    return (
      <Card>
        <Empty title="No sink writes">
          <p>The pipeline is {p.state}.</p>
        </Empty>
      </Card>
    );
  }
  return (
    <div class="stack">
      {sinks.map((s) => (
        <Sink key={s.sink} s={s} />
      ))}
    </div>
  );
}

function Sink({ s }: { s: SinkFlow }) {
  return (
    <Card title={s.sink} testid={`sink-${s.sink}`} right={<GuaranteeBadge guarantee={s.guarantee} />}>
      <div class="stack">
        {s.last_error && (
          <Notice tone="warn" title="A commit is being tried again">
            <p class="text">{s.last_error}</p>
          </Notice>
        )}
        <dl class="tiles">
          <Tile label="Takes">{rate(operatorRates.value.get(s.sink)?.in ?? 0)}</Tile>
          <Tile label="Not proven yet" title="Committables such as open transactions or uploads" sub={s.oldest_pending ? <>oldest <Time at={s.oldest_pending} /></> : plural(s.pending, "committable")}>
            {full(s.pending)}
          </Tile>
          <Tile label="Commits">{full(s.commits)}</Tile>
          <Tile label="Tries again" tone={s.retries > 0 ? "warn" : undefined}>
            {full(s.retries)}
          </Tile>
          <Tile label="Last commit">
            <Time at={s.last_commit} none="none" />
          </Tile>
        </dl>
      </div>
    </Card>
  );
}
