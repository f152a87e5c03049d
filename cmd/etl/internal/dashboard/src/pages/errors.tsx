import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Failure, Pipeline } from "../api/types";
import { actionsOf } from "../lib/can";
import { compact, full, plural, words } from "../lib/format";
import { ask } from "../ui/action";
import { Icon } from "../ui/icon";
import { Card, Empty, Loading, Notice, Scroll, Tile, Time } from "../ui/parts";
import { useResource } from "../ui/use";

const outcomes: Record<Failure["outcome"], [string, string]> = {
  fail: ["bad", "stopped the pipeline"],
  skip: ["warn", "skipped"],
  dead_letter: ["warn", "dead letter"],
};

/** ErrorsTab is the records that failed, and why. */
export function ErrorsTab({ p }: { p: Pipeline }) {
  const failed = useResource(`failures ${p.name}`, (abort) => api.failures(p.name, abort), `${p.counts.dead} ${p.counts.skipped} ${p.state}`);
  const [text, setText] = useState("");
  const all = failed.value ?? [];
  const shown = all.filter((f) => text === "" || JSON.stringify(f).toLowerCase().includes(text.toLowerCase()));
  return (
    <div class="stack">
      <dl class="tiles">
        <Tile label="Dead letters" sub="since the daemon began">
          {compact(p.counts.dead)}
        </Tile>
        <Tile label="Skipped">{compact(p.counts.skipped)}</Tile>
        <Tile label="Late" sub="behind the watermark">
          {compact(p.counts.late)}
        </Tile>
        <Tile label="Filtered" sub="on purpose">
          {compact(p.counts.filtered)}
        </Tile>
      </dl>
      <Groups all={all} />
      <Card
        pad={false}
        testid="failures"
        title="Newest records that failed"
        right={
          <>
            <input class="input" type="search" placeholder="Filter" aria-label="Filter failures" data-filter value={text} onInput={(e) => setText(e.currentTarget.value)} />
            <button type="button" class="btn small" onClick={failed.reload}>
              <Icon name="again" /> Reload
            </button>
          </>
        }
      >
        {failed.error && <Notice tone="bad" title={failed.error.message} />}
        {!failed.value && !failed.error && <Loading />}
        {failed.value && shown.length === 0 && (
          <Empty title={all.length === 0 ? "No record has failed" : "None fits"}>{all.length === 0 && <p>What fails is shown here with topic, partition, offset and reason.</p>}</Empty>
        )}
        {shown.length > 0 && <FailureTable p={p} shown={shown} />}
      </Card>
    </div>
  );
}

/** Groups are the failures by cause, the most frequent first. */
function Groups({ all }: { all: Failure[] }) {
  const groups = new Map<string, Failure[]>();
  for (const f of all) {
    const key = `${f.operator}: ${f.reason}`;
    const group = groups.get(key);
    if (group) group.push(f);
    else groups.set(key, [f]);
  }
  const sorted = [...groups.values()].sort((a, b) => b.length - a.length).slice(0, 8);
  if (sorted.length === 0 || all.length < 2) return null;
  return (
    <Card title="By cause" pad={false} testid="causes">
      <Scroll label="Failures by cause">
        <table>
          <caption class="visually-hidden">Failures by cause, of the newest {all.length}</caption>
          <thead>
            <tr>
              <th scope="col">Step</th>
              <th scope="col">Reason</th>
              <th scope="col" class="num">
                Records
              </th>
              <th scope="col">First</th>
              <th scope="col">Last</th>
            </tr>
          </thead>
          <tbody>
            {sorted.map((g) => {
              const newest = g[0]!;
              return (
                <tr key={`${newest.operator} ${newest.reason}`}>
                  <th scope="row">{newest.operator}</th>
                  <td class="words">{newest.reason}</td>
                  <td class="num">{full(g.length)}</td>
                  <td>
                    <Time at={g[g.length - 1]!.time} />
                  </td>
                  <td>
                    <Time at={newest.time} />
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </Card>
  );
}

function FailureTable({ p, shown }: { p: Pipeline; shown: Failure[] }) {
  const skips = actionsOf(p).includes("skip");
  return (
    <Scroll label="Records that failed" class="tall">
      <table>
        <caption class="visually-hidden">{plural(shown.length, "record")} that failed, newest first</caption>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Step</th>
            <th scope="col">Record</th>
            <th scope="col">Reason</th>
            <th scope="col">What came of it</th>
            <th scope="col">
              <span class="visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((f) => {
            const [tone, text] = outcomes[f.outcome] ?? ["", words(f.outcome)];
            return (
              <tr key={`${f.time}${f.topic ?? ""}${f.partition}${f.offset}${f.operator}`} data-testid="failure-row">
                <td>
                  <Time at={f.time} />
                </td>
                <th scope="row">
                  {f.operator}
                  <span class="sub">{f.kind}</span>
                </th>
                <td class="mono nowrap">{f.topic && f.partition >= 0 ? `${f.topic}/${f.partition}@${f.offset}` : (f.topic ?? "–")}</td>
                <td class="words">
                  {f.reason}
                  {f.expression && <code class="sub">{f.expression}</code>}
                </td>
                <td>
                  <span class={`badge plain ${tone}`}>{text}</span>
                </td>
                <td class="num">
                  {skips && f.outcome === "fail" && f.topic && f.offset >= 0 && (
                    <button type="button" class="btn small" onClick={() => ask("skip", p, { topic: f.topic!, partition: f.partition, offset: f.offset })} data-testid="skip-row">
                      <Icon name="skip" /> Skip
                    </button>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
