import { afterEach, describe, expect, test, vi } from "vitest";
import { ApiError, api, movedOf, openStream, signIn, unauthorized, type Link } from "../src/api/client";
import type { ServerEvent } from "../src/api/sse";

type Answer = (url: string, init: RequestInit) => Response | Promise<Response>;

/** answers has the requests answered one after the other, and keeps what was asked. */
function answers(...all: Answer[]): { url: string; init: RequestInit }[] {
  const asked: { url: string; init: RequestInit }[] = [];
  vi.stubGlobal("fetch", (url: string, init: RequestInit) => {
    asked.push({ url, init });
    const next = all.shift();
    return next ? Promise.resolve(next(url, init)) : new Promise(() => undefined);
  });
  return asked;
}

const json = (body: unknown, status = 200): Answer => () => new Response(JSON.stringify(body), { status });
const stream = (text: string): Answer => () => new Response(text, { headers: { "Content-Type": "text/event-stream" } });
const headers = (init: RequestInit): Record<string, string> => init.headers as Record<string, string>;

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
  signIn("");
});

describe("requests", () => {
  test("carry the token, in a header and not in the address", async () => {
    signIn(" secret ");
    const asked = answers(json([]));
    await api.pipelines();
    expect(headers(asked[0]!.init)["Authorization"]).toBe("Bearer secret");
    expect(asked[0]!.url).toBe("/api/v1/pipelines");
  });

  test("escape a name that is none", async () => {
    const asked = answers(json({}));
    await api.definition("../daemon?x");
    expect(asked[0]!.url).toBe("/api/v1/pipelines/..%2Fdaemon%3Fx/definition");
  });

  test("that are refused say why in the daemon's words", async () => {
    answers(json({ title: "Conflict", status: 409, code: "phase", detail: "pipeline orders is starting; try again when it runs" }, 409));
    await expect(api.checkpoint("orders")).rejects.toMatchObject({ status: 409, code: "phase", message: "pipeline orders is starting; try again when it runs" });
  });

  test("without a token lead to the form for it", async () => {
    answers(() => new Response("no", { status: 401 }));
    await expect(api.pipelines()).rejects.toBeInstanceOf(ApiError);
    expect(unauthorized.value).toBe(true);
    signIn("another");
    expect(unauthorized.value).toBe(false);
  });

  test("that nobody answers say that, and not what the browser calls it", async () => {
    answers(() => {
      throw new TypeError("Failed to fetch");
    });
    await expect(api.pipelines()).rejects.toMatchObject({ status: 0, message: expect.stringContaining("does not answer") as string });
  });

  test("without a body answer nothing", async () => {
    answers(() => new Response(null, { status: 204 }));
    await expect(api.resume("orders")).resolves.toBeUndefined();
  });
});

test("moved positions are read from a list, an object, and nothing", () => {
  const moved = [{ split: "a/0", before: 1, after: 2 }];
  expect(movedOf(moved)).toEqual(moved);
  expect(movedOf({ moved })).toEqual(moved);
  expect(movedOf(null)).toEqual([]);
});

describe("streams", () => {
  const follow = (again = true): { events: ServerEvent[]; links: Link[]; end: () => void } => {
    const events: ServerEvent[] = [];
    const links: Link[] = [];
    const end = openStream({ path: "/stream", again, silence: 0, on: (e) => events.push(e), link: (l) => links.push(l) });
    return { events, links, end };
  };

  test("that break are opened again, behind the last event", async () => {
    vi.useFakeTimers();
    const asked = answers(stream("id: 41\nevent: event\ndata: a\n\n"), stream("id: 42\nevent: event\ndata: b\n\n"));
    const s = follow();
    await vi.advanceTimersByTimeAsync(1000);
    expect(s.events.map((e) => e.data)).toEqual(["a", "b"]);
    expect(headers(asked[0]!.init)["Last-Event-ID"]).toBeUndefined();
    expect(headers(asked[1]!.init)["Last-Event-ID"]).toBe("41");
    s.end();
  });

  test("that the daemon ends stay closed", async () => {
    vi.useFakeTimers();
    const asked = answers(stream("event: record\ndata: {}\n\nevent: end\ndata: {}\n\n"));
    const s = follow();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toHaveLength(1);
    expect(s.events.map((e) => e.event)).toEqual(["record"]);
    expect(s.links.at(-1)).toEqual({ state: "closed" });
  });

  test("that are refused are not asked for again and again", async () => {
    vi.useFakeTimers();
    const asked = answers(json({ detail: "no such pipeline" }, 404));
    const s = follow();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toHaveLength(1);
    expect(s.links.at(-1)).toMatchObject({ state: "refused", why: "no such pipeline", status: 404 });
  });

  test("of a busy daemon wait, and tell how long", async () => {
    vi.useFakeTimers();
    const asked = answers(json({ detail: "too many streams" }, 429), stream("data: x\n\n"));
    const s = follow();
    await vi.advanceTimersByTimeAsync(100);
    expect(s.links.at(-1)).toMatchObject({ state: "lost", why: "too many streams" });
    await vi.advanceTimersByTimeAsync(1000);
    expect(asked.length).toBeGreaterThan(1);
    s.end();
  });

  test("that are left are closed, and not opened again", async () => {
    vi.useFakeTimers();
    const asked = answers();
    const s = follow();
    await vi.advanceTimersByTimeAsync(10);
    s.end();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(asked).toHaveLength(1);
    expect(asked[0]!.init.signal!.aborted).toBe(true);
  });

  test("on which nothing comes for too long count as lost", async () => {
    vi.useFakeTimers();
    answers(
      (_url, init) => new Promise((_ok, fail) => init.signal!.addEventListener("abort", () => fail(new DOMException("aborted", "AbortError")))),
    );
    const links: Link[] = [];
    const end = openStream({ path: "/stream", again: true, silence: 5000, on: () => undefined, link: (l) => links.push(l) });
    await vi.advanceTimersByTimeAsync(5001);
    expect(links.at(-1)).toMatchObject({ state: "lost", why: expect.stringContaining("too long") as string });
    end();
  });
});
