import { graphlib, layout as dagre } from "@dagrejs/dagre";
import type { Description, Flow, Operator, OperatorFlow, TaskFlow } from "../api/types";

// The graph of a pipeline: where its boxes and lines go, and what they carry.

export interface Box {
  operator: Operator;
  x: number; // left
  y: number; // top
  width: number;
  height: number;
}

export interface Line {
  id: string;
  from: string;
  to: string;
  branch: string;
  exchange: "chained" | "forward" | "key";
  key: string[];
  points: { x: number; y: number }[];
  label: { x: number; y: number };
}

export interface Layout {
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
}

export const boxSize = { width: 184, height: 86 };
const labelSize = { width: 64, height: 34 };

/** edgesOf are the lines between operators. A reference is a name, or a name and a branch after a dot. */
export function edgesOf(operators: readonly Operator[]): Omit<Line, "points" | "label">[] {
  const names = new Set(operators.map((o) => o.name));
  const out: Omit<Line, "points" | "label">[] = [];
  for (const to of operators) {
    for (const input of to.inputs ?? []) {
      const dot = input.from.lastIndexOf(".");
      const whole = names.has(input.from);
      if (!whole && dot < 0) continue;
      const from = whole ? input.from : input.from.slice(0, dot);
      if (!names.has(from)) continue;
      const branch = whole ? "" : input.from.slice(dot + 1);
      out.push({ id: `${input.from}→${to.name}`, from, to: to.name, branch, exchange: input.exchange, key: input.key ?? [] });
    }
  }
  return out;
}

/** place lays the graph out, from left to right where wide and from top to bottom where not. */
export function place(description: Description, direction: "LR" | "TB"): Layout {
  const operators = description.operators ?? [];
  const graph = new graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: direction, nodesep: direction === "LR" ? 22 : 24, ranksep: direction === "LR" ? 20 : 16, marginx: 8, marginy: 8, edgesep: 12 });
  for (const o of operators) graph.setNode(o.name, { ...boxSize });
  const edges = edgesOf(operators);
  for (const e of edges) graph.setEdge(e.from, e.to, { ...labelSize, labelpos: "c" }, e.id);
  dagre(graph);
  const boxes = operators.map((operator): Box => {
    const n = graph.node(operator.name) as { x: number; y: number };
    return { operator, x: n.x - boxSize.width / 2, y: n.y - boxSize.height / 2, ...boxSize };
  });
  const lines = edges.map((e): Line => {
    const g = graph.edge(e.from, e.to, e.id) as { points: { x: number; y: number }[]; x: number; y: number };
    return { ...e, points: g.points, label: { x: g.x, y: g.y } };
  });
  const size = graph.graph() as { width?: number; height?: number };
  return { boxes, lines, width: Math.ceil(size.width ?? 0), height: Math.ceil(size.height ?? 0) };
}

/** curve is the path of a line through its points. */
export function curve(points: readonly { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  if (rest.length === 0) return `M${first.x},${first.y}`;
  let d = `M${first.x},${first.y}`;
  for (let i = 0; i < rest.length - 1; i++) {
    const p = rest[i]!;
    const q = rest[i + 1]!;
    const end = i === rest.length - 2 ? q : { x: (p.x + q.x) / 2, y: (p.y + q.y) / 2 };
    d += `Q${p.x.toFixed(1)},${p.y.toFixed(1)} ${end.x.toFixed(1)},${end.y.toFixed(1)}`;
  }
  if (rest.length === 1) d += `L${rest[0]!.x},${rest[0]!.y}`;
  return d;
}

/** Load is how a chain's subtasks spend their time, and which of them is worst. */
export interface Load {
  tasks: TaskFlow[];
  busy: number; // share of the busiest
  backpressured: number; // share of the most held up
  idle: number; // share of the most idle
  word: "busy" | "backpressured" | "idle" | "flowing" | "";
}

/** loadOf is of the chain that an operator is part of; moving says that records pass. A bottleneck is what is busy all the time; what is before it is backpressured. */
export function loadOf(flow: Flow | undefined, chain: string, moving = false): Load {
  const tasks = (flow?.tasks ?? []).filter((t) => t.chain === chain).sort((a, b) => a.subtask - b.subtask);
  const most = (pick: (t: TaskFlow) => number): number => Math.max(0, ...tasks.map(pick));
  const load = { tasks, busy: most((t) => t.busy), backpressured: most((t) => t.backpressured), idle: most((t) => t.idle) };
  if (tasks.length === 0) return { ...load, word: "" };
  if (load.backpressured >= 0.5) return { ...load, word: "backpressured" };
  if (load.busy >= 0.7) return { ...load, word: "busy" };
  if (!moving && tasks.every((t) => t.idle >= 0.9)) return { ...load, word: "idle" };
  return { ...load, word: "flowing" };
}

/** flowOf finds the numbers of an operator. */
export function flowOf(flow: Flow | undefined, name: string): OperatorFlow | undefined {
  return flow?.operators?.find((o) => o.name === name);
}
