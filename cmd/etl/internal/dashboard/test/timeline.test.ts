import { describe, expect, test } from "vitest";
import type { Attempt, TaskStats } from "../src/api/types";
import { barsOf, byChain, merge, slowest, timeline } from "../src/lib/timeline";

const task = (Chain: string, Subtask: number, t: Partial<TaskStats> = {}): TaskStats => ({ task: { Chain, Subtask }, acked: true, latency: 0, start_delay: 0, alignment: 0, sync: 0, async: 0, buffered: 0, size: 0, ...t });
const attempt = (a: Partial<Attempt> = {}): Attempt => ({ id: { generation: 1, number: 7 }, kind: "checkpoint", status: "completed", triggered: "2026-11-30T12:00:00Z", duration: 1000, metadata: 0, commit: 0, size: 0, new_size: 0, acked: 0, tasks: [], ...a });

describe("time line", () => {
  test("the parts of a subtask follow each other until its acknowledgement", () => {
    expect(barsOf(task("a", 0, { start_delay: 10, alignment: 20, async: 30, latency: 65 }))).toEqual([
      { part: "delay", from: 0, to: 10 },
      { part: "alignment", from: 10, to: 30 },
      { part: "async", from: 30, to: 60 },
      { part: "ack", from: 60, to: 65 },
    ]);
  });

  test("metadata and commits come behind the last acknowledgement", () => {
    const { rows, end } = timeline(attempt({ duration: 500, metadata: 20, commit: 30, tasks: [task("a", 0, { async: 90, latency: 100 }), task("b", 0, { async: 390, latency: 400 })] }));
    expect(rows[2]!.bars).toEqual([
      { part: "metadata", from: 400, to: 420 },
      { part: "commit", from: 420, to: 450 },
    ]);
    expect(end).toBe(500);
  });

  test("no bar leaves the line, also where clocks disagree with the duration", () => {
    const { rows, end } = timeline(attempt({ duration: 10, tasks: [task("a", 0, { async: 900, latency: 950 })] }));
    expect(Math.max(...rows.flatMap((r) => r.bars.map((b) => b.to)))).toBeLessThanOrEqual(end);
  });

  test("one that nobody acknowledged has rows without bars", () => {
    const { rows, end } = timeline(attempt({ status: "failed", duration: 0, tasks: [task("a", 0, { acked: false })] }));
    expect(rows[0]!.bars).toEqual([]);
    expect(end).toBeGreaterThan(0);
  });

  test("subtasks are in the order of their numbers", () => {
    const { rows } = timeline(attempt({ tasks: [task("b", 10), task("b", 2), task("a", 0)] }));
    expect(rows.map((r) => r.label)).toEqual(["a / 0", "b / 2", "b / 10"]);
  });
});

test("of an operator the slowest subtask and the sum of the sizes are shown", () => {
  const { rows } = timeline(attempt({ tasks: [task("a", 0, { sync: 5, size: 100 }), task("a", 1, { sync: 9, size: 50, acked: false })] }));
  expect(byChain(rows)).toMatchObject([{ chain: "a", acked: 1, sync: 9, size: 150 }]);
});

test("what took longest is named where it is worth naming", () => {
  const tasks = [task("a", 0, { alignment: 20 }), task("b", 2, { alignment: 800 })];
  expect(slowest(attempt({ tasks }))).toEqual({ chain: "b", subtask: 2, part: "alignment", length: 800 });
  expect(slowest(attempt({ tasks: [tasks[0]!] }))).toBeUndefined();
  expect(slowest(attempt({ tasks, status: "in_progress" }))).toBeUndefined();
});

test("the history has each checkpoint once, over restarts, newest first", () => {
  const at = (number: number, generation: number, second: number) => attempt({ id: { generation, number }, triggered: `2026-11-30T12:00:0${second}Z` });
  const all = merge([at(9, 2, 5), at(8, 2, 4)], [at(8, 2, 4), at(7, 1, 2)]);
  expect(all.map((a) => a.id.number)).toEqual([9, 8, 7]);
});
