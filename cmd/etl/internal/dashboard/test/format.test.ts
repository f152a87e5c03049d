import { describe, expect, test } from "vitest";
import { ago, absolute, bytes, coarse, compact, full, nanos, percent, rate, seconds, toMs } from "../src/lib/format";

test.each([
  [0, "0"],
  [7, "7"],
  [0.4, "0.4"],
  [999, "999"],
  [1000, "1k"],
  [1234, "1.23k"],
  [48_213, "48.2k"],
  [999_949, "1M"],
  [999_499, "999k"],
  [4_560_000, "4.56M"],
  [2.5e9, "2.5G"],
  [-1234, "-1.23k"],
  [NaN, "–"],
])("compact(%s) is %s", (n, want) => expect(compact(n)).toBe(want));

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1 KiB"],
  [1_048_575, "1 MiB"],
  [214e6, "204 MiB"],
  [-1, "–"],
])("bytes(%s) is %s", (n, want) => expect(bytes(n)).toBe(want));

test.each([
  [0, "0 s"],
  [0.0000004, "1 µs"],
  [0.00035, "350 µs"],
  [0.0012, "1.2 ms"],
  [0.0123, "12 ms"],
  [0.9999, "1 s"],
  [4.25, "4.3 s"],
  [59.4, "59 s"],
  [60, "1 m"],
  [200, "3 m 20 s"],
  [3600, "1 h"],
  [7500, "2 h 5 m"],
  [356_400, "4 d 3 h"],
  [-1, "–"],
])("seconds(%s) is %s", (n, want) => expect(seconds(n)).toBe(want));

test("a duration never shows 60 of a unit that another one follows", () => {
  for (let s = 0.001; s < 200_000; s *= 1.003) expect(seconds(s)).not.toMatch(/\b60 [sm]\b|\b24 h\b|\b1000 /);
});

test("durations of Go are nanoseconds", () => expect(nanos(1_840_000_000)).toBe("1.8 s"));

test("what is too slow to tell is no flow", () => {
  expect(rate(0.01)).toBe("0/s");
  expect(rate(12.34)).toBe("12/s");
});

test("shares", () => {
  expect(percent(0)).toBe("0%");
  expect(percent(0.004)).toBe("<1%");
  expect(percent(0.966)).toBe("97%");
});

test("full groups digits without a comma, which is a decimal sign to many", () => expect(full(2589696)).toBe("2\u202f589\u202f696"));

describe("times", () => {
  const now = Date.parse("2026-11-30T12:00:00Z");
  test.each([
    ["2026-11-30T12:00:00Z", "just now"],
    ["2026-11-30T11:59:48Z", "12 s ago"],
    ["2026-11-30T11:58:00Z", "2 min ago"],
    ["2026-11-30T10:30:00Z", "1.5 h ago"],
    ["2026-11-27T12:00:00Z", "3 d ago"],
    ["2026-11-30T12:00:30Z", "in 30 s"],
  ])("%s is %s", (at, want) => expect(ago(at, now)).toBe(want));

  test("the zero time of Go and no time are none", () => {
    expect(toMs("0001-01-01T00:00:00Z")).toBeUndefined();
    expect(toMs("")).toBeUndefined();
    expect(toMs(undefined)).toBeUndefined();
    expect(absolute("0001-01-01T00:00:00Z")).toBe("");
    expect(ago(undefined, now)).toBe("–");
  });

  test("the absolute time has date, milliseconds and zone", () => expect(absolute("2026-11-30T12:00:00.007Z")).toMatch(/^2026-(11-30|12-01) \d\d:\d\d:00\.007 UTC/));

  test("the largest unit never rounds up to the next one", () => {
    expect(coarse(59.6)).toBe("1 min");
    expect(coarse(3580)).toBe("1 h");
    expect(coarse(86_300)).toBe("1 d");
  });
});
