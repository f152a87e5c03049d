import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useRef, useState } from "preact/hooks";
import type { AttemptStatus, Guarantee, Level, Problem, State } from "../api/types";
import { now } from "../live";
import { absolute, ago, words } from "../lib/format";
import { Icon, type IconName } from "./icon";

// The small parts that every page is put together from.

type Tone = "ok" | "warn" | "bad" | "info" | "quiet";

const states: Record<State, [Tone, IconName, string]> = {
  invalid: ["bad", "warn", "Its file has faults, and nothing of it runs"],
  starting: ["info", "again", "Nothing flows yet"],
  running: ["ok", "run", "Records flow"],
  restarting: ["warn", "again", "It failed, and starts again by itself"],
  stopping: ["info", "again", "A last checkpoint is being taken"],
  paused: ["quiet", "pause", "Resume goes on with the same job"],
  stopped: ["quiet", "stop", "Its job was stopped or cancelled; start begins the next one"],
  finished: ["ok", "done", "Its bounded input was read to the end"],
  failed: ["bad", "cross", "It needs a person"],
};

export function StateBadge({ state }: { state: State }) {
  const [tone, icon, title] = states[state] ?? ["quiet", "info", ""];
  return (
    <span class={`badge ${tone}`} title={title} data-testid="state" data-state={state}>
      <Icon name={icon} spin={state === "starting" || state === "restarting" || state === "stopping"} />
      {state}
    </span>
  );
}

const statuses: Record<AttemptStatus, [Tone, IconName]> = {
  in_progress: ["info", "again"],
  committing: ["info", "again"],
  completed: ["ok", "done"],
  failed: ["bad", "cross"],
  subsumed: ["quiet", "skip"],
};

export function AttemptBadge({ status }: { status: AttemptStatus }) {
  const [tone, icon] = statuses[status] ?? ["quiet", "info"];
  return (
    <span class={`badge ${tone}`} data-status={status}>
      <Icon name={icon} spin={status === "in_progress" || status === "committing"} />
      {words(status)}
    </span>
  );
}

const guarantees: Record<Guarantee, string> = {
  exactly_once: "Each result is there once, over crashes and restarts",
  effectively_once: "What is written again overwrites itself",
  at_least_once: "After a crash results may be there twice",
};

export function GuaranteeBadge({ guarantee }: { guarantee: Guarantee | "" | undefined }) {
  if (!guarantee) return <span class="muted">–</span>;
  return (
    <span class={`badge plain ${guarantee === "at_least_once" ? "warn" : ""}`} title={guarantees[guarantee]}>
      {words(guarantee)}
    </span>
  );
}

/** Time shows how long ago something was, and its date and zone when pointed at. */
export function Time({ at, none = "–" }: { at: string | number | undefined; none?: string }) {
  const text = absolute(at);
  if (!text) return <span class="muted">{none}</span>;
  return (
    <time class="nowrap" dateTime={typeof at === "number" ? new Date(at).toISOString() : at} title={text}>
      {ago(at, now.value)}
    </time>
  );
}

const noticeIcons: Record<Tone, IconName> = { ok: "done", warn: "warn", bad: "error", info: "info", quiet: "info" };

export function Notice({ tone, title, children, action, testid, live = false }: { tone: Tone; title?: string | undefined; children?: ComponentChildren; action?: ComponentChildren; testid?: string; live?: boolean }) {
  return (
    <div class={`notice ${tone}`} data-testid={testid} role={live ? (tone === "bad" ? "alert" : "status") : undefined}>
      <Icon name={noticeIcons[tone]} />
      <div class="grow">
        {title && <strong class="text">{title}</strong>}
        {children && <div>{children}</div>}
      </div>
      {action}
    </div>
  );
}

export const toneOf = (level: Level | string): Tone => (level === "error" || level === "ERROR" ? "bad" : /^warn/i.test(level) ? "warn" : "info");

export function ProblemNotice({ problem }: { problem: Problem }) {
  return (
    <Notice tone={toneOf(problem.level)} title={problem.text} testid={`problem-${problem.kind}`}>
      {problem.help && <p class="help text">{problem.help}</p>}
      <p class="muted">
        {words(problem.kind)}
        {problem.step && <> · {problem.step}</>} · since <Time at={problem.since} />
      </p>
    </Notice>
  );
}

export function Loading({ what = "Loading" }: { what?: string }) {
  return (
    <div class="loading" role="status">
      <Icon name="again" spin /> {what} …
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

export function Card({ title, right, children, testid, pad = true }: { title?: ComponentChildren; right?: ComponentChildren; children: ComponentChildren; testid?: string; pad?: boolean }) {
  return (
    <section class="card" data-testid={testid}>
      {(title || right) && (
        <header>
          {title && <h2>{title}</h2>}
          {right && <div class="right">{right}</div>}
        </header>
      )}
      {pad ? <div class="body">{children}</div> : children}
    </section>
  );
}

/** Scroll keeps what is wider than the page in a box of its own, which the keyboard reaches too. */
export function Scroll({ label, children, class: more = "" }: { label: string; children: ComponentChildren; class?: string }) {
  return (
    <div class={`scroll ${more}`} role="region" aria-label={label} tabIndex={0}>
      {children}
    </div>
  );
}

export function Tile({ label, children, sub, title, tone }: { label: string; children: ComponentChildren; sub?: ComponentChildren; title?: string; tone?: "bad" | "warn" | undefined }) {
  return (
    <div class="tile" title={title}>
      <dt>{label}</dt>
      <dd class={tone ? `tone-${tone}` : ""}>
        {children}
        {sub !== undefined && <div class="sub">{sub}</div>}
      </dd>
    </div>
  );
}

/** toClipboard also works on a page without TLS, where browsers have no clipboard for scripts. */
async function toClipboard(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return undefined;
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    await toClipboard(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button type="button" class="btn quiet small icon" onClick={() => void copy()} title={label} aria-label={done ? "Copied" : `${label}: ${text}`}>
      <Icon name={done ? "done" : "copy"} />
    </button>
  );
}

/** Path shows where something lies, to be copied. */
export function Path({ path }: { path: string }) {
  return (
    <div class="path">
      <code data-testid="path">{path}</code>
      <Copy text={path} label="Copy path" />
    </div>
  );
}

export interface MenuItem {
  label: string;
  icon: IconName;
  bad?: boolean;
  testid: string;
  pick: () => void;
}

/** Menu is a button that opens a list of actions; arrows, Home, End and Escape work in it. */
export function Menu({ label, items, small = false, text }: { label: string; items: MenuItem[]; small?: boolean; text?: string }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const buttons = (): HTMLButtonElement[] => [...(box.current?.querySelectorAll<HTMLButtonElement>("li button") ?? [])];
  const close = (): void => {
    setOpen(false);
    box.current?.querySelector("button")?.focus();
  };
  const onKey = (e: TargetedKeyboardEvent<HTMLDivElement>): void => {
    if (!open) return;
    const all = buttons();
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const go: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 };
    if (e.key === "Escape") close();
    else if (e.key in go) all[(go[e.key]! + all.length) % all.length]?.focus();
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  const toggle = (): void => {
    setOpen(!open);
    if (!open) requestAnimationFrame(() => buttons()[0]?.focus());
  };
  if (items.length === 0) return null;
  return (
    <div class="menu" ref={box} onKeyDown={onKey} onFocusOut={(e) => !box.current?.contains(e.relatedTarget as Node) && setOpen(false)}>
      <button type="button" class={`btn ${text ? "" : "quiet icon"} ${small ? "small" : ""}`} aria-haspopup="menu" aria-expanded={open} aria-label={label} onClick={toggle} data-testid="menu">
        {text}
        <Icon name="more" />
      </button>
      {open && (
        <ul role="menu" aria-label={label}>
          {items.map((item) => (
            <li role="none" key={item.testid}>
              <button
                type="button"
                role="menuitem"
                tabIndex={-1}
                class={item.bad ? "bad" : ""}
                data-testid={item.testid}
                onClick={() => {
                  close();
                  item.pick();
                }}
              >
                <Icon name={item.icon} />
                {item.label}
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

export function Segments<T extends string>({ label, options, value, pick }: { label: string; options: readonly (readonly [T, string])[]; value: T; pick: (value: T) => void }) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button type="button" key={key} aria-pressed={key === value} onClick={() => pick(key)} data-testid={`pick-${key}`}>
          {text}
        </button>
      ))}
    </div>
  );
}
