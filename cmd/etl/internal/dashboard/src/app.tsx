import { useEffect, useRef, useState } from "preact/hooks";
import { signIn, signedIn, unauthorized } from "./api/client";
import { bytes, compact, plural } from "./lib/format";
import { cpu, daemon, link, now, pipelines, watch, watchDaemon } from "./live";
import { DaemonPage } from "./pages/daemon";
import { EventsPage } from "./pages/events";
import { LogsPage } from "./pages/logs";
import { NewPage } from "./pages/new";
import { PipelinePage } from "./pages/pipeline";
import { PipelinesPage } from "./pages/pipelines";
import { ActionDialog } from "./ui/action";
import { Dialog } from "./ui/dialog";
import { Icon } from "./ui/icon";
import { Card, Empty, Notice } from "./ui/parts";
import { Link, go, route } from "./ui/router";
import { setTheme, theme, type Theme } from "./ui/theme";

export function App() {
  const at = route.value;
  const name = at.page === "pipeline" ? at.name : "";
  const refused = unauthorized.value;
  const [help, setHelp] = useState(false);
  const main = useRef<HTMLElement>(null);
  useEffect(() => (refused ? undefined : watch(name)), [name, refused]);
  useEffect(() => (refused ? undefined : watchDaemon()), [refused]);
  useShortcuts(() => setHelp(true));
  const view = at.page === "pipeline" ? `${at.name} ${at.tab}` : at.page;
  useEffect(() => {
    document.title = at.page === "pipeline" ? `${at.name} · ${at.tab} · Sluice` : at.page === "pipelines" ? "Sluice" : `${at.page} · Sluice`;
  }, [view]);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), main.current?.focus())}>
        Skip to content
      </a>
      <Top help={() => setHelp(true)} />
      <Connection />
      <main id="main" ref={main} tabIndex={-1} data-testid={`page-${at.page}`}>
        {refused ? <SignIn /> : <View />}
      </main>
      <ActionDialog />
      {help && <Shortcuts close={() => setHelp(false)} />}
    </>
  );
}

function View() {
  const at = route.value;
  switch (at.page) {
    case "pipelines":
      return <PipelinesPage />;
    case "pipeline":
      return <PipelinePage name={at.name} tab={at.tab} rest={at.rest} />;
    case "new":
      return <NewPage />;
    case "events":
      return <EventsPage />;
    case "logs":
      return <LogsPage />;
    case "daemon":
      return <DaemonPage />;
    case "unknown":
      return (
        <Card>
          <h1 class="visually-hidden">Not found</h1>
          <Empty title="There is no such page">
            <p>
              <code>{at.path}</code>
            </p>
            <Link class="btn" href="/">
              All pipelines
            </Link>
          </Empty>
        </Card>
      );
  }
}

function Top({ help }: { help: () => void }) {
  const at = route.value.page;
  const d = daemon.value;
  return (
    <header class="top">
      <Link class="brand" href="/" aria-label="Sluice: all pipelines">
        <img src="/icon.svg" width="24" height="24" alt="" />
        Sluice
      </Link>
      <nav aria-label="Pages">
        <Link href="/" current={at === "pipelines" || at === "pipeline"} data-testid="nav-pipelines">
          Pipelines
        </Link>
        <Link href="/events" current={at === "events"} data-testid="nav-events">
          Events
        </Link>
        <Link href="/logs" current={at === "logs"} data-testid="nav-logs">
          Logs
        </Link>
        <Link href="/daemon" current={at === "daemon"} data-testid="nav-daemon">
          Daemon
        </Link>
      </nav>
      <div class="process">
        {d && (
          <>
            <span class={`badge ${d.ready ? "ok" : "bad"}`} data-testid="ready" title={d.ready ? "Every pipeline progresses, or has nothing to do" : "A pipeline does not progress: see its problems"}>
              <Icon name={d.ready ? "done" : "warn"} />
              {d.ready ? "ready" : "not ready"}
            </span>
            <span class="wide" title="Memory in use, and the budget of all pipelines together">
              <b>{bytes(d.rss)}</b>
              {d.memory > 0 && <> of {bytes(d.memory)}</>}
            </span>
            {cpu.value >= 0 && (
              <span class="wider wide" title="Processor time, in cores">
                <b>{compact(Math.round(cpu.value * 100) / 100)}</b> cores
              </span>
            )}
            <span class="wider wide" title="Version">
              {d.version}
            </span>
          </>
        )}
        <span class="row">
          <ThemeButton />
          <button type="button" class="btn quiet icon" onClick={help} title="Keyboard shortcuts (?)" aria-label="Keyboard shortcuts" data-testid="shortcuts">
            <Icon name="keys" />
          </button>
          {signedIn.value && (
            <button type="button" class="btn quiet icon" onClick={() => (signIn(""), location.reload())} title="Forget the token of this tab" aria-label="Sign out">
              <Icon name="key" />
            </button>
          )}
        </span>
      </div>
    </header>
  );
}

const nextTheme: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

function ThemeButton() {
  const t = theme.value;
  const says = t === "auto" ? "as the system" : t;
  return (
    <button type="button" class="btn quiet icon" onClick={() => setTheme(nextTheme[t])} title={`Theme: ${says}`} aria-label={`Theme: ${says}. Change to ${nextTheme[t] === "auto" ? "as the system" : nextTheme[t]}`} data-testid="theme">
      <Icon name={t === "dark" ? "moon" : t === "light" ? "sun" : "auto"} />
    </button>
  );
}

/** Connection tells while nothing new comes in. */
function Connection() {
  const l = link.value;
  if (unauthorized.value) return null;
  if (l.state === "lost") {
    const wait = Math.max(0, Math.ceil((l.retry - now.value) / 1000));
    return (
      <div class="banner" role="status" data-testid="connection-lost">
        <Icon name="warn" />
        <span>
          {l.why} {pipelines.value && "What is shown is old."} {wait > 0 ? `Trying again in ${plural(wait, "second")}.` : "Trying again …"}
        </span>
      </div>
    );
  }
  if (l.state === "refused" && l.status !== 401 && l.status !== 404) {
    return (
      <div class="banner" role="alert">
        <Icon name="warn" /> {l.why}
      </div>
    );
  }
  return null;
}

function SignIn() {
  return (
    <div class="sign-in stack">
      <Card title="This daemon wants a token" testid="sign-in">
        <form
          class="stack"
          onSubmit={(e) => {
            e.preventDefault();
            signIn(String(new FormData(e.currentTarget).get("token") ?? ""));
          }}
        >
          <p class="muted">It is kept for this tab only, until that is closed, and goes to this daemon only.</p>
          {signedIn.value && <Notice tone="bad" title="The token was refused" live />}
          <label class="field">
            <span>Token</span>
            <input class="input" name="token" type="password" required autoFocus autocomplete="off" data-testid="token" />
          </label>
          <div class="row">
            <button type="submit" class="btn primary" data-testid="sign-in-confirm">
              <Icon name="key" /> Sign in
            </button>
          </div>
        </form>
      </Card>
    </div>
  );
}

const shortcuts: [string, string][] = [
  ["g p", "All pipelines"],
  ["g e", "Events"],
  ["g l", "Logs"],
  ["g d", "Daemon"],
  ["n", "New pipeline"],
  ["/", "Filter"],
  ["[ ]", "Previous tab, next tab"],
  ["t", "Theme"],
  ["?", "This list"],
];

function Shortcuts({ close }: { close: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" close={close} testid="dialog-shortcuts">
      <div class="dialog">
        <h2>Keyboard shortcuts</h2>
        <dl class="shortcuts">
          {shortcuts.map(([keys, what]) => (
            <>
              <dt>
                {keys.split(" ").map((k) => (
                  <>
                    <kbd>{k}</kbd>{" "}
                  </>
                ))}
              </dt>
              <dd>{what}</dd>
            </>
          ))}
        </dl>
        <footer>
          <button type="button" class="btn primary" onClick={close} autoFocus>
            Close
          </button>
        </footer>
      </div>
    </Dialog>
  );
}

const jumps: Record<string, string> = { p: "/", e: "/events", l: "/logs", d: "/daemon" };

/** useShortcuts listens where nobody types. */
function useShortcuts(help: () => void): void {
  useEffect(() => {
    let g = 0;
    const onKey = (e: KeyboardEvent): void => {
      const at = e.target as HTMLElement;
      if (e.ctrlKey || e.metaKey || e.altKey || at.closest("input, textarea, select, dialog, [role=menu]")) return;
      const to = jumps[e.key];
      if (to !== undefined && performance.now() - g < 1000) {
        g = 0;
        go(to);
      } else if (e.key === "g") g = performance.now();
      else if (e.key === "?") help();
      else if (e.key === "n") go("/new");
      else if (e.key === "t") setTheme(nextTheme[theme.value]);
      else if (e.key === "/") document.querySelector<HTMLInputElement>("[data-filter]")?.focus();
      else if (e.key === "[" || e.key === "]") step(e.key === "]" ? 1 : -1);
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function step(by: number): void {
  const all = [...document.querySelectorAll<HTMLAnchorElement>(".tabs a")];
  const at = all.findIndex((a) => a.getAttribute("aria-current"));
  if (at >= 0) all[(at + by + all.length) % all.length]?.click();
}
