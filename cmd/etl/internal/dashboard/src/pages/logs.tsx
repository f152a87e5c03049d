import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { openStream, type Link as Connection } from "../api/client";
import type { Line } from "../api/types";
import { absolute, clock, plural } from "../lib/format";
import { pathOf } from "../lib/route";
import { Icon } from "../ui/icon";
import { Card, Empty, Loading, Notice, Segments, toneOf } from "../ui/parts";
import { Link } from "../ui/router";

const kept = 2000;

type Level = "debug" | "info" | "warn" | "error";

/** LogsPage is the log of the daemon and all its pipelines. */
export function LogsPage() {
  return (
    <div class="stack">
      <div class="head">
        <h1>Logs</h1>
      </div>
      <LogView pipeline="" />
    </div>
  );
}

/** LogView follows the log, of one pipeline or of all. */
export function LogView({ pipeline }: { pipeline: string }) {
  const [level, setLevel] = useState<Level>("info");
  const [text, setText] = useState("");
  const [follow, setFollow] = useState(true);
  const log = useLog(pipeline, level, follow);
  const shown = log.lines.filter((l) => text === "" || `${l.pipeline ?? ""} ${l.text} ${attrsOf(l)}`.toLowerCase().includes(text.toLowerCase()));
  return (
    <Card
      pad={false}
      testid="logs"
      right={
        <>
          <Segments
            label="Least level"
            value={level}
            pick={setLevel}
            options={[
              ["debug", "Debug"],
              ["info", "Info"],
              ["warn", "Warn"],
              ["error", "Error"],
            ]}
          />
          <input class="input" type="search" placeholder="Filter" aria-label="Filter lines" data-filter value={text} onInput={(e) => setText(e.currentTarget.value)} data-testid="log-filter" />
          <button type="button" class="btn small" aria-pressed={follow} onClick={() => setFollow(!follow)} data-testid="follow">
            <Icon name={follow ? "pause" : "run"} />
            {follow ? "Pause" : "Follow"}
          </button>
        </>
      }
      title={shown.length === log.lines.length ? plural(shown.length, "line") : `${shown.length} of ${plural(log.lines.length, "line")}`}
    >
      {log.link.state === "refused" && <Notice tone="bad" title={log.link.why} live />}
      {shown.length === 0 ? log.link.state === "connecting" ? <Loading what="Reading the log" /> : <Empty title={log.lines.length === 0 ? "No line yet" : "No line fits"} /> : <Lines shown={shown} named={pipeline === ""} stick={follow} />}
    </Card>
  );
}

function useLog(pipeline: string, level: Level, follow: boolean) {
  const [lines, setLines] = useState<Line[]>([]);
  const [link, setLink] = useState<Connection>({ state: "connecting" });
  const last = useRef(0);
  useEffect(() => {
    setLines([]);
    last.current = 0;
  }, [pipeline, level]);
  useEffect(() => {
    if (!follow) return undefined;
    let waiting: Line[] = [];
    let timer = 0;
    const show = (): void => {
      timer = 0;
      const fresh = waiting;
      waiting = [];
      setLines((all) => [...all, ...fresh].slice(-kept));
    };
    const query = new URLSearchParams({ level, limit: "500", follow: "true", ...(pipeline ? { pipeline } : {}), ...(last.current ? { after: String(last.current) } : {}) });
    const end = openStream({
      path: `/logs?${query.toString()}`,
      again: true,
      silence: 60_000,
      link: setLink,
      on: ({ data }) => {
        const line = JSON.parse(data) as Line;
        if (line.number <= last.current) return;
        last.current = line.number;
        waiting.push(line);
        timer ||= requestAnimationFrame(show);
      },
    });
    return () => {
      end();
      cancelAnimationFrame(timer);
    };
  }, [pipeline, level, follow]);
  return { lines, link };
}

function Lines({ shown, named, stick }: { shown: Line[]; named: boolean; stick: boolean }) {
  const box = useRef<HTMLUListElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    if (stick && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.length, shown[shown.length - 1]?.number, stick]);
  return (
    <ul
      class="lines"
      ref={box}
      tabIndex={0}
      aria-label="Lines of the log"
      onScroll={(e) => {
        const b = e.currentTarget;
        atEnd.current = b.scrollHeight - b.scrollTop - b.clientHeight < 40;
      }}
    >
      {shown.map((l) => (
        <li key={l.number} class={named ? "with-name" : ""} data-testid="line">
          <time title={absolute(l.time)}>{clock(l.time)}</time>
          <span class={`tone-${toneOf(l.level.toLowerCase())}`}>{l.level.toLowerCase()}</span>
          {named && <span class="name">{l.pipeline && <Link href={pathOf(l.pipeline, "logs")}>{l.pipeline}</Link>}</span>}
          <span>
            {l.text} <span class="attrs">{attrsOf(l)}</span>
          </span>
        </li>
      ))}
    </ul>
  );
}

function attrsOf(l: Line): string {
  return Object.entries(l.attrs ?? {})
    .map(([k, v]) => `${k}=${typeof v === "string" ? v : JSON.stringify(v)}`)
    .join(" ");
}
