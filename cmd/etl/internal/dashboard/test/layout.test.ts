import { describe, expect, test } from "vitest";
import type { Description, Flow, Operator } from "../src/api/types";
import { boxSize, edgesOf, loadOf, place } from "../src/lib/layout";

const operator = (name: string, role: Operator["role"], from: string[] = [], chain = name): Operator => ({ name, role, kind: "x", chain, inputs: from.map((f) => ({ from: f, exchange: "forward" })) });

const graph: Description = {
  pipeline: "p",
  parallelism: 2,
  max_parallelism: 128,
  mode: "aligned",
  modes_equal: true,
  operators: [operator("a.b", "source"), operator("split", "step", ["a.b"]), operator("left", "sink", ["split.west"]), operator("right", "sink", ["split.east", "split.west"]), operator("dead", "sink")],
};

describe("graph", () => {
  test("a reference with a branch is a line from its step, and a dot in a name is none", () => {
    expect(edgesOf(graph.operators!).map((e) => [e.from, e.branch, e.to])).toEqual([
      ["a.b", "", "split"],
      ["split", "west", "left"],
      ["split", "east", "right"],
      ["split", "west", "right"],
    ]);
  });

  test("two branches into one step are two lines", () => {
    const ids = place(graph, "LR").lines.map((l) => l.id);
    expect(new Set(ids).size).toBe(4);
  });

  test.each(["LR", "TB"] as const)("going %s no box covers another, and all are inside", (direction) => {
    const { boxes, width, height } = place(graph, direction);
    expect(boxes).toHaveLength(5);
    for (const a of boxes) {
      expect(a.x >= 0 && a.y >= 0 && a.x + a.width <= width && a.y + a.height <= height, a.operator.name).toBe(true);
      for (const b of boxes) {
        if (a !== b) expect(Math.abs(a.x - b.x) >= boxSize.width || Math.abs(a.y - b.y) >= boxSize.height, `${a.operator.name} and ${b.operator.name}`).toBe(true);
      }
    }
  });

  test("records go from left to right, or down", () => {
    const at = (direction: "LR" | "TB", name: string) => place(graph, direction).boxes.find((b) => b.operator.name === name)!;
    expect(at("LR", "a.b").x).toBeLessThan(at("LR", "split").x);
    expect(at("LR", "split").x).toBeLessThan(at("LR", "left").x);
    expect(at("TB", "a.b").y).toBeLessThan(at("TB", "split").y);
  });

  test("a pipeline without operators has an empty graph", () => expect(place({ ...graph, operators: null }, "LR").boxes).toEqual([]));
});

describe("load of a chain", () => {
  const flow = (...tasks: [number, number, number][]): Flow => ({ time: "", operators: [], splits: [], sinks: [], tasks: tasks.map(([busy, backpressured, idle], subtask) => ({ chain: "c", subtask, busy, backpressured, idle, queued: 0, queue: 0 })) });

  test("is the word of its worst subtask", () => {
    expect(loadOf(flow([0.1, 0, 0.9], [0.95, 0, 0.05]), "c").word).toBe("busy");
    expect(loadOf(flow([0.2, 0.7, 0.1], [0.1, 0, 0.9]), "c").word).toBe("backpressured");
    expect(loadOf(flow([0.02, 0, 0.98]), "c").word).toBe("idle");
    expect(loadOf(flow([0.3, 0, 0.7]), "c").word).toBe("flowing");
  });

  test("is not idle while records pass", () => expect(loadOf(flow([0.02, 0, 0.98]), "c", true).word).toBe("flowing"));

  test("without a task there is none", () => expect(loadOf(flow(), "c").word).toBe(""));
});
