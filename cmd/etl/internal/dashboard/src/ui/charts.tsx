import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { sparkPath } from "../lib/series";
import { color, shade } from "./theme";
import { useWidth } from "./use";

/** Sparkline is the newest values as a line, for a look; the number beside it says how much. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  const shown = values.slice(-60);
  const { line, area } = sparkPath(shown, 120, 26, 60);
  return (
    <svg class="spark" viewBox="0 0 120 26" preserveAspectRatio="none" role="img" aria-label={label}>
      <path class="area" d={area} />
      <path class="line" d={line} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

export interface Curve {
  label: string;
  color: string; // name of a custom property
  format: (value: number) => string;
  bars?: boolean;
  binary?: boolean; // its axis has steps of powers of 1024
  fill?: boolean;
}

interface ChartProps {
  label: string;
  height: number;
  curves: Curve[];
  data: uPlot.AlignedData;
  /** names are of the places along x, which are then 0, 1, 2, …; without them x are seconds since 1970. */
  names?: string[];
  pick?: (index: number) => void;
}

/** Chart draws curves or bars over time or checkpoints. */
export function Chart(p: ChartProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const chart = useRef<uPlot | null>(null);
  const pick = useRef(p.pick);
  pick.current = p.pick;
  const names = useRef(p.names);
  names.current = p.names;
  const shape = `${p.curves.map((c) => c.label).join()}/${p.height}/${shade.value}`;
  useEffect(() => {
    if (!box.current || width === 0) return;
    const u = new uPlot(options(p, width, (i) => names.current?.[i] ?? ""), p.data, box.current);
    u.over.addEventListener("click", () => {
      if (u.cursor.idx !== null && u.cursor.idx !== undefined) pick.current?.(u.cursor.idx);
    });
    if (p.pick) u.over.style.cursor = "pointer";
    chart.current = u;
    return () => {
      u.destroy();
      chart.current = null;
    };
  }, [shape, width === 0]);
  useEffect(() => chart.current?.setSize({ width, height: p.height }), [width]);
  useEffect(() => chart.current?.setData(p.data), [p.data]);
  return <div class="chart" ref={box} role="img" aria-label={p.label} />;
}

const countSteps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];
const timeSteps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
const byteSteps = Array.from({ length: 50 }, (_, i) => 2 ** i);

function options(p: ChartProps, width: number, nameOf: (index: number) => string): uPlot.Options {
  const time = p.names === undefined;
  const grid = { stroke: color("line"), width: 1 };
  const font = "11px system-ui, sans-serif";
  const axis = { stroke: color("muted"), font, grid, ticks: { show: false } };
  const first = p.curves[0]!;
  return {
    width,
    height: p.height,
    padding: [10, 8, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { show: !p.curves.some((c) => c.bars) } },
    legend: { live: true },
    scales: { x: time ? { time } : { time, range: (_u, min, max) => [min - 0.6, max + 0.6] }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.08 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, size: 26, incrs: time ? timeSteps : countSteps, space: time ? 70 : 44, values: time ? timeLabels : (_u, splits) => splits.map(nameOf) },
      { ...axis, size: 66, ...(first.binary ? { incrs: byteSteps } : {}), values: (_u, splits) => splits.map((s) => first.format(s)) },
    ],
    series: [
      { label: time ? "Time" : "Checkpoint", value: (_u, v) => (v === null || v === undefined ? "–" : time ? new Date(v * 1000).toLocaleTimeString("en-GB") : nameOf(v)) },
      ...p.curves.map((c): uPlot.Series => {
        const stroke = color(c.color);
        return {
          label: c.label,
          stroke,
          width: c.bars ? 0 : 1.6,
          ...(c.bars ? { fill: stroke, paths: uPlot.paths.bars!({ size: [0.7, 26], radius: 0.12 }) } : {}),
          ...(c.fill ? { fill: stroke.replace(/^rgb\((.*)\)$/, "rgba($1, 0.1)") } : {}),
          points: { show: false },
          value: (_u, v) => (v === null || v === undefined ? "–" : c.format(v)),
        };
      }),
    ],
  };
}

function timeLabels(_u: uPlot, splits: number[]): string[] {
  const short = splits.length > 1 && splits[1]! - splits[0]! < 60;
  return splits.map((s) => new Date(s * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(short ? { second: "2-digit" } : {}) }));
}
