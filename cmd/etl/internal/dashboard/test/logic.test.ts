import { describe, expect, test } from "vitest";
import { actionsOf } from "../src/lib/can";
import { parse, pathOf } from "../src/lib/route";
import { Counter, Series, sparkPath } from "../src/lib/series";
import { diff, tokens } from "../src/lib/yaml";

describe("rates of counters", () => {
  test("a steady count has its rate", () => {
    const c = new Counter();
    let rate = 0;
    for (let t = 0; t <= 30; t++) rate = c.rate(t * 500, t);
    expect(rate).toBeCloseTo(500);
  });

  test("a restart, after which counts begin at 0, is no negative rate", () => {
    const c = new Counter();
    c.rate(1000, 1);
    c.rate(2000, 2);
    expect(c.rate(10, 3)).toBe(0);
    expect(c.rate(110, 4)).toBeCloseTo(100);
  });

  test("the same time twice changes nothing", () => {
    const c = new Counter();
    c.rate(0, 1);
    const rate = c.rate(100, 2);
    expect(c.rate(100, 2)).toBe(rate);
  });
});

test("a series keeps the newest, and only what is newer", () => {
  const s = new Series(3);
  for (const t of [1, 2, 2, 3, 4]) s.push(t, t * 10);
  expect(s.values).toEqual([20, 30, 40]);
});

test("a sparkline stays in its box", () => {
  const { line } = sparkPath([0, 5, 1_000_000], 100, 20, 10);
  for (const [, x, y] of line.matchAll(/([\d.]+),([\d.]+)/g)) {
    expect(Number(x)).toBeLessThanOrEqual(100);
    expect(Number(y)).toBeGreaterThanOrEqual(0);
    expect(Number(y)).toBeLessThanOrEqual(20);
  }
  expect(sparkPath([1], 100, 20, 10).line).toBe("");
});

describe("addresses", () => {
  test.each(["orders", "a b/c%"])("of pipeline %s lead back to it", (name) => {
    expect(parse(pathOf(name))).toEqual({ page: "pipeline", name, tab: "overview", rest: "" });
    expect(parse(pathOf(name, "checkpoints", "12"))).toEqual({ page: "pipeline", name, tab: "checkpoints", rest: "12" });
  });

  test("what is none is told", () => {
    expect(parse("/pipelines/x/nothing").page).toBe("unknown");
    expect(parse("/elsewhere").page).toBe("unknown");
    expect(parse("/%zz").page).toBe("unknown");
    expect(parse("/").page).toBe("pipelines");
  });
});

describe("definitions", () => {
  test("colours change no text", () => {
    for (const line of ["# a comment", "  - filter: 'a > 1' # why", 'x: {brokers: ["${A:-b}"], n: 10s, t: true}', "by-country: 'it''s'", "\todd \"unfinished"]) {
      expect(tokens(line).map((t) => t.text).join("")).toBe(line);
    }
  });

  test("keys, strings, durations and comments are told apart", () => {
    expect(tokens("interval: 10s # often").filter((t) => t.kind !== "text").map((t) => [t.kind, t.text])).toEqual([
      ["key", "interval"],
      ["mark", ":"],
      ["number", "10s"],
      ["comment", "# often"],
    ]);
  });

  test("a difference has both texts", () => {
    const changes = diff("a\nb\nc", "a\nx\nc\nd");
    expect(changes.filter((c) => c.sign !== "+").map((c) => c.text)).toEqual(["a", "b", "c"]);
    expect(changes.filter((c) => c.sign !== "-").map((c) => c.text)).toEqual(["a", "x", "c", "d"]);
    expect(changes.filter((c) => c.sign === " ")).toHaveLength(2);
  });
});

test("what cannot be done in a state is not offered", () => {
  expect(actionsOf({ state: "running" })).toContain("savepoint");
  expect(actionsOf({ state: "running" })).not.toContain("start");
  expect(actionsOf({ state: "paused" })[0]).toBe("resume");
  expect(actionsOf({ state: "failed" })).toContain("skip");
  expect(actionsOf({ state: "stopped" })[0]).toBe("start");
});
