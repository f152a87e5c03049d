import { useState } from "preact/hooks";
import type { Attempt, Pipeline } from "../api/types";
import { absolute, bytes, nanos, plural, words } from "../lib/format";
import { byChain, slowest, timeline, type ChainTotal, type Part, type Row } from "../lib/timeline";
import { Icon } from "../ui/icon";
import { AttemptBadge, Card, Notice, Scroll } from "../ui/parts";

const parts: [Part, string, string][] = [
  ["delay", "start delay", "from the trigger until the barrier came to the subtask"],
  ["alignment", "alignment", "until the barrier had come on every input"],
  ["sync", "sync", "the part of the snapshot for which records waited"],
  ["async", "async and upload", "the part beside which records flowed"],
  ["ack", "acknowledgement", "on the way to the coordinator"],
  ["metadata", "metadata", "written when all had acknowledged"],
  ["commit", "commit", "publishing to the sinks"],
];

const partText = new Map(parts.map(([part, text]) => [part, text]));

const why: Partial<Record<Part, string>> = {
  delay: "The barrier was late: the subtasks before it were busy or held up. Look for backpressure in the overview.",
  alignment: "One of its inputs was much later than the others. Look for the input that is held up, or use unaligned barriers.",
  sync: "Records waited for this. State in memory is copied at this moment; the disk backend copies less.",
  async: "Writing and uploading took longest. Look at the size, and at the storage.",
};

/** AttemptDetail is one checkpoint: where its time went, subtask by subtask. */
export function AttemptDetail({ p, attempt: a, order }: { p: Pipeline; attempt: Attempt; order: string[] }) {
  const { rows, end } = timeline(a, order);
  const slow = slowest(a);
  const used = new Set(rows.flatMap((r) => r.bars.map((b) => b.part)));
  return (
    <Card
      testid="attempt"
      title={
        <>
          Checkpoint {a.id.number} {a.kind !== "checkpoint" && <span class="muted">{words(a.kind)}</span>}
        </>
      }
      right={<AttemptBadge status={a.status} />}
    >
      <div class="stack">
        {a.failure && (
          <Notice tone="bad" title="It failed" testid="attempt-failure">
            <p class="text">{a.failure}</p>
          </Notice>
        )}
        {!a.failure && slow && (
          <Notice tone="info" title={`${nanos(slow.length)} of ${nanos(a.duration)} was ${partText.get(slow.part)} of ${slow.chain} / ${slow.subtask}`} testid="attempt-slowest">
            {why[slow.part] && <p class="help">{why[slow.part]}</p>}
          </Notice>
        )}
        <dl class="kv">
          <dt>Triggered</dt>
          <dd>{absolute(a.triggered)}</dd>
          <dt>Took</dt>
          <dd>
            {nanos(a.duration)}
            <span class="muted">
              {" "}
              · metadata {nanos(a.metadata)} · commit {nanos(a.commit)}
            </span>
          </dd>
          <dt>Size</dt>
          <dd>
            {bytes(a.size)} <span class="muted">· {bytes(a.new_size)} new</span>
          </dd>
          <dt>Generation</dt>
          <dd>
            {a.id.generation}
            {p.status?.generation !== undefined && a.id.generation < p.status.generation && <span class="muted"> · before the newest start</span>}
          </dd>
        </dl>
        {rows.length > 0 ? (
          <>
            <div class="stack tight">
              <h3>Time line</h3>
              <div class="legend">
                {parts
                  .filter(([part]) => used.has(part))
                  .map(([part, text, title]) => (
                    <span key={part} title={title}>
                      <i class={part} />
                      {text}
                    </span>
                  ))}
              </div>
              <Timeline rows={rows} end={end} running={a.status === "in_progress"} />
            </div>
            <ChainTable chains={byChain(rows)} />
          </>
        ) : (
          <p class="muted">Of this one no subtasks are kept.</p>
        )}
      </div>
    </Card>
  );
}

function Timeline({ rows, end, running }: { rows: Row[]; end: number; running: boolean }) {
  return (
    <Scroll label="Time line of the checkpoint">
      <div class="timeline" role="list" data-testid="timeline">
        {rows.map((r) => (
          <TimelineRow key={r.label} row={r} end={end} running={running} />
        ))}
        <span />
        <span class="axis" aria-hidden="true">
          {[0, 0.25, 0.5, 0.75, 1].map((share) => (
            <span key={share} style={{ left: `${share * 100}%` }}>
              {nanos(end * share)}
            </span>
          ))}
        </span>
        <span />
      </div>
    </Scroll>
  );
}

function TimelineRow({ row: r, end, running }: { row: Row; end: number; running: boolean }) {
  const last = r.bars[r.bars.length - 1]?.to ?? 0;
  const says = r.acked ? r.bars.map((b) => `${partText.get(b.part)} ${nanos(b.to - b.from)}`).join(", ") : "not acknowledged";
  return (
    <>
      <span class="label" title={r.label}>
        {r.label}
      </span>
      <span class="track" role="listitem" aria-label={`${r.label}: ${says}`}>
        {r.bars.map((b) => (
          <span key={b.part} class={`bar ${b.part}`} title={`${partText.get(b.part)}: ${nanos(b.to - b.from)}, from ${nanos(b.from)}`} style={{ left: `${(b.from / end) * 100}%`, width: `${((b.to - b.from) / end) * 100}%` }} />
        ))}
        {!r.acked && <span class="waiting">{running ? "not yet acknowledged" : "had not acknowledged"}</span>}
      </span>
      <span class="num">{r.acked ? nanos(last) : "–"}</span>
    </>
  );
}

function ChainTable({ chains }: { chains: ChainTotal[] }) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (chain: string): void => {
    const next = new Set(open);
    if (!next.delete(chain)) next.add(chain);
    setOpen(next);
  };
  return (
    <Scroll label="Operators and subtasks" class="dense">
      <table>
        <caption class="visually-hidden">What each operator and subtask did; of an operator the slowest subtask of each column</caption>
        <thead>
          <tr>
            <th scope="col">Operator, slowest subtask</th>
            <th scope="col" class="num" title="Subtasks that acknowledged">
              Acked
            </th>
            <th scope="col" class="num">
              End to end
            </th>
            <th scope="col" class="num">
              Start delay
            </th>
            <th scope="col" class="num">
              Alignment
            </th>
            <th scope="col" class="num">
              Sync
            </th>
            <th scope="col" class="num">
              Async
            </th>
            <th scope="col" class="num">
              Held back
            </th>
            <th scope="col" class="num">
              Size
            </th>
          </tr>
        </thead>
        <tbody>
          {chains.map((c) => (
            <>
              <tr key={c.chain} data-testid={`chain-${c.chain}`}>
                <th scope="row">
                  <button type="button" class="toggle" aria-expanded={open.has(c.chain)} onClick={() => toggle(c.chain)} title={plural(c.tasks.length, "subtask")}>
                    <Icon name="chevron" />
                    {c.chain}
                  </button>
                </th>
                <td class="num">
                  {c.acked}/{c.tasks.length}
                </td>
                <Numbers of={c} acked={c.acked > 0} />
              </tr>
              {open.has(c.chain) &&
                c.tasks.map((t) => (
                  <tr key={`${c.chain}/${t.task.Subtask}`} class="subtask">
                    <th scope="row">subtask {t.task.Subtask}</th>
                    <td class="num">{t.acked ? "yes" : "no"}</td>
                    <Numbers of={t} acked={t.acked} />
                  </tr>
                ))}
            </>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Numbers({ of, acked }: { of: Pick<ChainTotal, "latency" | "start_delay" | "alignment" | "sync" | "async" | "buffered" | "size">; acked: boolean }) {
  if (!acked) {
    return (
      <td class="num muted" colSpan={7}>
        –
      </td>
    );
  }
  return (
    <>
      {[of.latency, of.start_delay, of.alignment, of.sync, of.async].map((ns, i) => (
        <td key={i} class="num">
          {nanos(ns)}
        </td>
      ))}
      <td class="num">{bytes(of.buffered)}</td>
      <td class="num">{bytes(of.size)}</td>
    </>
  );
}
