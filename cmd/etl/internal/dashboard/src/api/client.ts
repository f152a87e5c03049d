import { signal } from "@preact/signals";
import { Parser, backoff, type ServerEvent } from "./sse";
import type * as t from "./types";

/** ApiError is an answer that is no success, in the words of the daemon. */
export class ApiError extends Error {
  constructor(
    readonly status: number, // 0: no answer
    message: string,
    readonly code = "",
    readonly title = "",
  ) {
    super(message);
  }
}

const tokenKey = "sluice.token";

function storedToken(): string {
  try {
    return sessionStorage.getItem(tokenKey) ?? "";
  } catch {
    return ""; // storage is switched off: the token lasts as long as the page
  }
}

let token = storedToken();

/** unauthorized is set while the daemon wants a token, or another one. */
export const unauthorized = signal(false);

/** signedIn tells that a token is kept. */
export const signedIn = signal(token !== "");

/** signIn keeps a token for this tab; an empty one forgets it. */
export function signIn(value: string): void {
  token = value.trim();
  signedIn.value = token !== "";
  try {
    if (token) sessionStorage.setItem(tokenKey, token);
    else sessionStorage.removeItem(tokenKey);
  } catch {
    // As above.
  }
  unauthorized.value = false;
}

const root = "/api/v1";

async function send(method: string, path: string, body: unknown, abort?: AbortSignal, more: Record<string, string> = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: "application/json", ...more };
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const init: RequestInit = { method, headers, cache: "no-store", signal: abort ?? null };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  let response: Response;
  try {
    response = await fetch(root + path, init);
  } catch (error) {
    if (abort?.aborted) throw error;
    throw new ApiError(0, "The daemon does not answer. It may be starting again, or the network is down.", "unreachable");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response: Response): Promise<ApiError> {
  if (response.status === 401) unauthorized.value = true;
  let detail = "";
  let code = "";
  let title = "";
  try {
    const problem = (await response.json()) as { detail?: string; code?: string; title?: string; errors?: { message?: string }[] };
    detail = problem.detail ?? "";
    code = problem.code ?? "";
    title = problem.title ?? "";
    const more = problem.errors?.map((e) => e.message).filter(Boolean);
    if (more?.length) detail += `: ${more.join("; ")}`;
  } catch {
    // No problem document, such as from a proxy between.
  }
  if (response.status === 401) detail ||= "The daemon wants a token.";
  if (response.status === 403) detail ||= "The role of your token does not allow this.";
  return new ApiError(response.status, detail || title || `The daemon answered ${response.status} ${response.statusText}.`, code, title);
}

async function call<T>(method: string, path: string, body?: unknown, abort?: AbortSignal): Promise<T> {
  const response = await send(method, path, body, abort);
  const text = await response.text();
  return (text === "" ? undefined : JSON.parse(text)) as T;
}

const one = (name: string): string => `/pipelines/${encodeURIComponent(name)}`;
const get = <T>(path: string, abort?: AbortSignal): Promise<T> => call<T>("GET", path, undefined, abort);
const post = <T>(path: string, body: unknown = {}): Promise<T> => call<T>("POST", path, body);

/** api has one function for each request. */
export const api = {
  daemon: (abort?: AbortSignal) => get<t.Daemon>("/daemon", abort),
  reload: () => post<t.Reload>("/reload"),
  pipelines: (abort?: AbortSignal) => get<t.Pipeline[]>("/pipelines", abort),
  definition: (name: string, abort?: AbortSignal) => get<t.Definition>(`${one(name)}/definition`, abort),
  graph: (name: string, abort?: AbortSignal) => get<t.Description>(`${one(name)}/graph`, abort),
  failures: (name: string, abort?: AbortSignal) => get<t.Failure[]>(`${one(name)}/failures`, abort),
  checkpoints: (name: string, abort?: AbortSignal) => get<t.Checkpoints>(`${one(name)}/checkpoints`, abort),
  savepoints: (name: string, abort?: AbortSignal) => get<t.Savepoint[]>(`${one(name)}/savepoints`, abort),
  events: (name: string, abort?: AbortSignal) => get<t.Event[]>(`${name ? one(name) : ""}/events?limit=300`, abort),
  put: (name: string, definition: string) => call<t.Pipeline>("PUT", one(name), { definition }),
  remove: (name: string) => call<void>("DELETE", one(name)),
  validate: (definition: string) => post<t.Validation>("/validate", { definition }),
  plan: (definition: string) => post<t.Plan>("/plan", { definition }),
  start: (name: string, options: t.StartOptions) => post<t.Moved[] | { moved?: t.Moved[] | null } | null>(`${one(name)}/start`, options),
  pause: (name: string) => post<t.Taken | null>(`${one(name)}/pause`),
  resume: (name: string) => post<void>(`${one(name)}/resume`),
  restart: (name: string) => post<void>(`${one(name)}/restart`),
  stop: (name: string, options: { savepoint: boolean; dir?: string; drain: boolean }) => post<t.Taken | null>(`${one(name)}/stop`, options),
  cancel: (name: string) => post<t.Taken | null>(`${one(name)}/cancel`),
  skip: (name: string, topic: string, partition: number, offset: number) =>
    post<t.Moved[] | { moved?: t.Moved[] | null } | null>(`${one(name)}/skip`, { topic, partition, offset }),
  checkpoint: (name: string) => post<t.Taken | null>(`${one(name)}/checkpoints`),
  savepoint: (name: string, dir: string) => post<t.Taken | null>(`${one(name)}/savepoints`, dir ? { dir } : {}),
};

/** movedOf is what an answer tells of positions that were moved. */
export function movedOf(answer: t.Moved[] | { moved?: t.Moved[] | null } | null | undefined): t.Moved[] {
  if (!answer) return [];
  return Array.isArray(answer) ? answer : (answer.moved ?? []);
}

/** Link is how the connection of a stream is. */
export type Link = { state: "connecting" | "open" | "closed" } | { state: "lost"; why: string; retry: number } | { state: "refused"; why: string; status: number };

export interface StreamOptions {
  path: string; // below /api/v1
  on: (event: ServerEvent) => void;
  link: (link: Link) => void;
  /** again says that a stream which ends is opened again; a tap with a limit is not. */
  again: boolean;
  /** silence is after how many ms without a byte the connection counts as lost; 0 for never. */
  silence: number;
}

/** openStream reads events until the returned function is called, and connects again after a loss. */
export function openStream(o: StreamOptions): () => void {
  const stop = new AbortController();
  void follow(o, stop.signal);
  return () => stop.abort();
}

async function follow(o: StreamOptions, stop: AbortSignal): Promise<void> {
  const seen: Seen = { id: "", end: false };
  for (let tries = 0; !stop.aborted; tries++) {
    let why = "The connection to the daemon ended.";
    if (tries === 0) o.link({ state: "connecting" });
    try {
      await read(o, seen, stop, () => {
        tries = 0;
        o.link({ state: "open" });
      });
      if ((seen.end || !o.again) && !stop.aborted) return o.link({ state: "closed" });
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
        return o.link({ state: "refused", why: error.message, status: error.status });
      }
      if (error instanceof Error) why = error.message;
    }
    if (stop.aborted) return;
    const wait = backoff(tries);
    o.link({ state: "lost", why, retry: Date.now() + wait });
    await pause(wait, stop);
  }
}

/** Seen is what has come of a stream, over all its connections. */
interface Seen {
  id: string; // of the newest event, from which the daemon goes on
  end: boolean; // the daemon has said that nothing more comes
}

async function read(o: StreamOptions, seen: Seen, stop: AbortSignal, opened: () => void): Promise<void> {
  const dead = new AbortController();
  const signal = AbortSignal.any([stop, dead.signal]);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const heard = (): void => {
    clearTimeout(timer);
    if (o.silence > 0) timer = setTimeout(() => dead.abort(), o.silence);
  };
  try {
    heard();
    const response = await send("GET", o.path, undefined, signal, { Accept: "text/event-stream", ...(seen.id ? { "Last-Event-ID": seen.id } : {}) });
    if (!response.body) throw new ApiError(0, "The daemon sent no stream.");
    opened();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      for (const event of parser.feed(value)) {
        if (event.id) seen.id = event.id;
        if (event.event === "end") seen.end = true;
        else o.on(event);
      }
    }
  } catch (error) {
    if (dead.signal.aborted && !stop.aborted) throw new ApiError(0, "Nothing came from the daemon for too long.");
    if (error instanceof ApiError || stop.aborted) throw error;
    throw new ApiError(0, "The connection to the daemon broke.");
  } finally {
    clearTimeout(timer);
  }
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const wake = (): void => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", wake);
      done();
    };
    const timer = setTimeout(wake, ms);
    stop.addEventListener("abort", wake, { once: true });
    globalThis.addEventListener?.("online", wake, { once: true });
  });
}
