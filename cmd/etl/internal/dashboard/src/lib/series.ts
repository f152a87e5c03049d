// What is remembered of numbers that pass, for sparklines and rates.

/** Series keeps the newest values. */
export class Series {
  readonly values: number[] = [];
  readonly times: number[] = []; // s since 1970
  constructor(private readonly most: number) {}

  push(time: number, value: number): void {
    if (this.times.length > 0 && time <= this.times[this.times.length - 1]!) return;
    this.times.push(time);
    this.values.push(value);
    if (this.values.length > this.most) {
      this.times.shift();
      this.values.shift();
    }
  }
}

/** Counter makes a rate of a count that grows, and begins anew when it falls back after a restart. */
export class Counter {
  private count = 0;
  private time = -1;
  private smooth = -1;

  /** rate is per second, smoothed over about three seconds; 0 until two counts were seen. */
  rate(count: number, time: number): number {
    const dt = time - this.time;
    if (this.time >= 0 && dt <= 0) return Math.max(0, this.smooth);
    if (this.time < 0 || count < this.count) {
      this.smooth = -1;
    } else {
      const now = (count - this.count) / dt;
      const weight = 1 - Math.exp(-dt / 3);
      this.smooth = this.smooth < 0 ? now : this.smooth + weight * (now - this.smooth);
    }
    this.count = count;
    this.time = time;
    return Math.max(0, this.smooth);
  }
}

/** sparkPath is the line of a sparkline in a box of the given size, its scale beginning at 0. */
export function sparkPath(values: readonly number[], width: number, height: number, most: number): { line: string; area: string } {
  if (values.length < 2) return { line: "", area: "" };
  const top = Math.max(...values, 1e-9);
  const step = width / (most - 1);
  const from = width - (values.length - 1) * step;
  const points = values.map((v, i) => `${(from + i * step).toFixed(1)},${(height - 1 - (v / top) * (height - 2)).toFixed(1)}`);
  return {
    line: `M${points.join("L")}`,
    area: `M${from.toFixed(1)},${height}L${points.join("L")}L${width.toFixed(1)},${height}Z`,
  };
}
