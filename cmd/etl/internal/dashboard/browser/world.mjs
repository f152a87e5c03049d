// What the tests have in common: the browser, what it must not do, and the world around
// the daemon, which the Go test keeps.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

/** setting is a variable that the Go test sets. */
function setting(name) {
  const value = process.env[name];
  assert.ok(value, `${name} is not set: run this by go test -tags integration`);
  return value;
}

export const url = setting("ETL_URL");
export const definition = setting("ETL_DEFINITION");
export const topic = setting("ETL_TOPIC");
const control = setting("ETL_CONTROL");
const shots = setting("ETL_SCREENSHOTS");
mkdirSync(shots, { recursive: true });

/** patience bounds a wait for something that has to come, in milliseconds. */
export const patience = Number(process.env.PATIENCE ?? 60_000);

/** world asks the Go test to do something, such as to kill the broker. */
export async function world(what) {
  const answer = await fetch(`${control}/${what}`, { method: "POST" });
  const text = await answer.text();
  assert.equal(answer.status, 200, `${what}: ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}

/** until waits for something outside of the page. */
export async function until(what, holds) {
  for (const end = Date.now() + patience; ; ) {
    if (await holds()) return;
    assert.ok(Date.now() < end, `waited in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export const browser = await chromium.launch({ executablePath: setting("CHROMIUM"), args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/** nobody is a pipeline that there is not. */
export const nobody = "nobody";

/** faults are what no page may do, whatever is shown on it. */
const faults = [];

/** open makes a page that is watched, of a width and in a theme. */
export async function open({ width = 1024, height = 900, theme = "light" } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce" });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.on("console", (m) => {
    if (m.location().url === `${url}/api/v1/stream?pipeline=${nobody}`) return; // the answer that there is none
    if (m.type() === "error" || m.type() === "warning") faults.push(`console ${m.type()} at ${page.url()}: ${m.text()} ${m.location().url}`);
  });
  page.on("pageerror", (e) => faults.push(`error at ${page.url()}: ${e.stack ?? e}`));
  page.on("request", (r) => {
    const at = new URL(r.url());
    if (at.origin !== new URL(url).origin && at.protocol !== "data:" && at.protocol !== "blob:") faults.push(`${page.url()} asks another host: ${r.url()}`);
  });
  page.on("response", (r) => {
    if (r.status() >= 500) faults.push(`${r.request().method()} ${r.url()} answers ${r.status()}`);
  });
  return page;
}

/** faultless checks that no page has done what it may not. */
export function faultless() {
  const all = faults.splice(0);
  assert.deepEqual(all, []);
}

/** forgive forgets what a page has told of a daemon that was gone. */
export function forgive() {
  for (const f of faults.splice(0)) if (!/net::ERR_|answers 50/.test(f)) faults.push(f);
}

/** visit shows a view and waits until it is there. */
export async function visit(page, path, ...testids) {
  await page.goto(url + path, { waitUntil: "domcontentloaded" });
  for (const id of testids) await page.getByTestId(id).first().waitFor();
}

/** fits checks that nothing makes the page wider than its window. */
export async function fits(page) {
  const wide = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.scrollingElement.scrollWidth <= innerWidth) return [];
    const out = [];
    for (const e of document.querySelectorAll("body *")) {
      const box = e.getBoundingClientRect();
      if (box.right > width + 1 && !e.parentElement.closest(".scroll")) out.push(`${e.tagName}.${e.className} to ${Math.round(box.right)} of ${width}`);
    }
    return out.length > 0 ? out.slice(0, 5) : [`the page is ${document.scrollingElement.scrollWidth} wide of ${innerWidth}`];
  });
  assert.deepEqual(wide, [], `${page.url()} is wider than its window`);
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** accessible checks that there is no serious fault of accessibility. */
export async function accessible(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const bad = violations
    .filter((v) => v.impact === "serious" || v.impact === "critical")
    .map((v) => `${v.id}: ${v.help}; ${v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} ${n.failureSummary?.split("\n").slice(1, 2).join("").trim() ?? ""}`).join("; ")}`);
  assert.deepEqual(bad, [], `${page.url()} is not accessible`);
}

/** shot keeps what a page looks like. */
export async function shot(page, name) {
  await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
}
