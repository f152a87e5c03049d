// How numbers, times and sizes are written. Everywhere the same, with units, and "–" for
// what is not known.

export const unknown = "–";

const trim = (text: string): string => text.replace(/\.0+$|(\.\d*?)0+$/, "$1");

/** compact writes a count in at most five characters and a suffix: 950, 12.3k, 4.56M. */
export function compact(n: number): string {
  if (!Number.isFinite(n)) return unknown;
  const abs = Math.abs(n);
  if (abs < 999.5) return abs < 10 && !Number.isInteger(n) ? trim(n.toFixed(1)) : String(Math.round(n));
  for (const [unit, suffix] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    // 999 500 would be 1000k.
    if (abs >= unit * 0.9995) return digits(n / unit) + suffix;
  }
  return String(Math.round(n));
}

function digits(n: number): string {
  const abs = Math.abs(n);
  return trim(n.toFixed(abs >= 99.95 ? 0 : abs >= 9.995 ? 1 : 2));
}

/** full writes every digit, in groups. */
export function full(n: number): string {
  return Number.isFinite(n) ? n.toLocaleString("en-US", { maximumFractionDigits: 3 }).replaceAll(",", "\u202f") : unknown;
}

/** bytes writes a size in powers of 1024. */
export function bytes(n: number): string {
  if (!Number.isFinite(n) || n < 0) return unknown;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= 1023.5 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? Math.round(n) : digits(n)} ${units[i]}`;
}

/** seconds writes a duration given in seconds: 350 µs, 12 ms, 4.2 s, 3 m 20 s, 2 h 5 m, 4 d 3 h. */
export function seconds(s: number): string {
  if (!Number.isFinite(s) || s < 0) return unknown;
  if (s === 0) return "0 s";
  if (s < 0.0009995) return `${Math.max(1, Math.round(s * 1e6))} µs`;
  if (s < 0.9995) return `${s < 0.00995 ? trim((s * 1e3).toFixed(1)) : Math.round(s * 1e3)} ms`;
  if (s < 59.5) return `${trim(s.toFixed(s < 9.95 ? 1 : 0))} s`;
  const whole = Math.round(s);
  if (whole < 3600) return two(Math.floor(whole / 60), "m", whole % 60, "s");
  if (whole < 86_400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "m");
  return two(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

function two(a: number, ua: string, b: number, ub: string): string {
  return b === 0 ? `${a} ${ua}` : `${a} ${ua} ${b} ${ub}`;
}

/** nanos writes a duration given in nanoseconds. */
export const nanos = (ns: number): string => seconds(ns / 1e9);

/** rate writes records in a second. */
export const rate = (n: number): string => `${compact(n < 0.05 ? 0 : n)}/s`;

/** byteRate writes bytes in a second. */
export const byteRate = (n: number): string => `${bytes(n)}/s`;

/** percent writes a share of 1. */
export function percent(share: number): string {
  if (!Number.isFinite(share)) return unknown;
  const p = share * 100;
  return `${p > 0 && p < 1 ? "<1" : Math.round(p)}%`;
}

/** ago writes how long before now something was. */
export function ago(time: string | number | undefined, now: number): string {
  const at = toMs(time);
  if (at === undefined) return unknown;
  const s = (now - at) / 1000;
  if (s < -1.5) return `in ${coarse(-s)}`;
  if (s < 1.5) return "just now";
  return `${coarse(s)} ago`;
}

/** coarse writes a duration by its largest unit. */
export function coarse(s: number): string {
  if (s < 59.5) return `${Math.round(s)} s`;
  if (s < 3570) return `${Math.round(s / 60)} min`;
  if (s < 84_600) return `${trim((s / 3600).toFixed(s < 36_000 ? 1 : 0))} h`;
  return `${trim((s / 86_400).toFixed(s < 864_000 ? 1 : 0))} d`;
}

/** toMs is milliseconds since 1970; the zero time of Go is none. */
export function toMs(time: string | number | undefined): number | undefined {
  if (time === undefined || time === "") return undefined;
  const ms = typeof time === "number" ? time : Date.parse(time);
  return Number.isNaN(ms) || ms < -6e13 ? undefined : ms;
}

/** absolute writes a time with its date and zone, to the millisecond. */
export function absolute(time: string | number | undefined): string {
  const ms = toMs(time);
  if (ms === undefined) return "";
  const d = new Date(ms);
  const offset = -d.getTimezoneOffset();
  const zone = offset === 0 ? "UTC" : `UTC${offset < 0 ? "−" : "+"}${pad(Math.floor(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`;
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${clock(ms)}.${String(d.getMilliseconds()).padStart(3, "0")} ${zone}`;
}

/** clock writes the time of the day. */
export function clock(time: string | number): string {
  const ms = toMs(time);
  if (ms === undefined) return unknown;
  const d = new Date(ms);
  return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

const pad = (n: number): string => String(n).padStart(2, "0");

/** plural writes a count with its noun. */
export function plural(n: number, noun: string, many = `${noun}s`): string {
  return `${full(n)} ${n === 1 ? noun : many}`;
}

/** words writes a stable word of the API for people: at_least_once becomes at least once. */
export const words = (text: string): string => text.replaceAll("_", " ");
