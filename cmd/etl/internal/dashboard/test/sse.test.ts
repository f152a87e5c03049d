import { describe, expect, test } from "vitest";
import { Parser, backoff } from "../src/api/sse";

const stream = ": heartbeat\n\nid: 7\nevent: event\ndata: {\"number\":7}\n\ndata: a\ndata: b\n\nevent: none\n\nevent: flow\r\ndata:{}\r\n\r\n";
const want = [
  { event: "event", data: '{"number":7}', id: "7" },
  { event: "message", data: "a\nb", id: "7" },
  { event: "flow", data: "{}", id: "7" },
];

describe("server-sent events", () => {
  test("are read whole", () => expect(new Parser().feed(stream)).toEqual(want));

  test("are the same wherever the network cuts them", () => {
    for (let cut = 0; cut <= stream.length; cut++) {
      const parser = new Parser();
      expect([...parser.feed(stream.slice(0, cut)), ...parser.feed(stream.slice(cut))], `cut at ${cut}`).toEqual(want);
    }
  });

  test("are the same byte by byte", () => {
    const parser = new Parser();
    expect([...stream].flatMap((c) => parser.feed(c))).toEqual(want);
  });

  test("one that is not finished is kept back", () => {
    const parser = new Parser();
    expect(parser.feed("event: flow\ndata: {}\n")).toEqual([]);
    expect(parser.feed("\n")).toHaveLength(1);
  });

  test("only one space behind the colon is left out", () => expect(new Parser().feed("data:  x\n\n")[0]!.data).toBe(" x"));
});

test("tries come slower and slower, up to a bound, and not all at once", () => {
  expect(backoff(0, () => 0)).toBe(500);
  expect(backoff(3, () => 0)).toBe(4000);
  expect(backoff(30, () => 0)).toBe(15_000);
  expect(backoff(30, () => 1)).toBe(18_750);
});
