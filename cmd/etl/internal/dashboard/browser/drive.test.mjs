// Every page and action of the dashboard, in a browser, against a daemon with a broker.
// The tests come one after the other and go on from what the one before left.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessible, browser, definition, faultless, fits, forgive, nobody, open, shot, topic, until, url, visit, world } from "./world.mjs";

let page;

before(async () => {
  page = await open();
});
after(() => browser.close());

/** step is a test that goes on from what those before have left: after one that failed none is tried. */
let broken = "";
function step(name, f) {
  test(name, async () => {
    assert.equal(broken, "", "not tried, since one before has failed");
    broken = name;
    try {
      await f();
      faultless();
    } catch (e) {
      await shot(page, "fault").catch(() => {});
      throw e;
    }
    broken = "";
  });
}

/** state waits until the pipeline that is shown has come to one. */
const state = (name, at = page) => at.locator(`h1 [data-testid=state][data-state=${name}]`).waitFor();

/** act asks for an action of the pipeline that is shown, fills its form in, and confirms it. */
async function act(action, fill = async () => {}) {
  const button = page.locator(`.head .actions > [data-testid=action-${action}]`);
  if (await button.isVisible()) await button.click();
  else {
    await page.locator(".head").getByTestId("menu").click();
    await page.locator(`[role=menuitem][data-testid=action-${action}]`).click();
  }
  await confirm(action, fill);
}

/** confirm goes through the dialog that asks, and returns what it says at the end. */
async function confirm(action, fill = async () => {}) {
  const dialog = page.getByTestId(`dialog-${action}`);
  await dialog.waitFor();
  await fill(dialog);
  await accessible(page);
  await dialog.getByTestId("action-confirm").click();
  const result = dialog.getByTestId("action-result");
  await result.or(dialog.getByTestId("action-error")).waitFor();
  assert.ok(await result.isVisible(), `${action} was refused: ${await dialog.innerText()}`);
  const path = dialog.getByTestId("path");
  const taken = (await path.count()) > 0 ? await path.innerText() : "";
  await dialog.getByTestId("action-close").click();
  await dialog.waitFor({ state: "detached" });
  return taken;
}

const tab = async (name) => {
  await page.getByTestId(`tab-${name}`).click();
  await page.locator(`[data-testid=tab-${name}][aria-current]`).waitFor();
};

/** api asks the daemon what the page should show. */
async function api(path) {
  const answer = await fetch(`${url}/api/v1${path}`);
  assert.equal(answer.status, 200, path);
  return answer.json();
}

const orders = () => api("/pipelines/orders");

let savepoint = "";

step("a daemon without pipelines says what to do", async () => {
  await visit(page, "/", "page-pipelines", "new");
  await page.getByText("No pipeline yet").waitFor();
  await shot(page, "empty");
});

step("a pipeline with faults is refused with their places, and a good one is created", async () => {
  await page.getByTestId("new").click();
  await page.getByTestId("editor").fill(definition.replace("topics:", "topisc:"));
  await page.getByTestId("validate").click();
  await page.getByTestId("fault").first().waitFor();
  assert.match(await page.getByTestId("editor-answer").innerText(), /topisc/);
  await shot(page, "new-with-fault");
  await page.getByTestId("editor").fill(definition);
  await page.getByTestId("plan").click();
  await page.getByRole("region", { name: "Plan" }).waitFor();
  await page.getByTestId("save").click();
  await page.getByTestId("save-confirm").click();
  await state("running");
  await until("records are written", async () => (await orders()).counts.written > 0);
});

step("the graph shows each step, what flows, and what is known of one", async () => {
  for (const name of ["in", "priced", "per-item", "out"]) await page.getByTestId(`node-${name}`).waitFor();
  await page.getByTestId("node-per-item").click();
  await page.getByTestId("operator").waitFor();
  await shot(page, "step");
  await page.getByTestId("operator-tap").click();
  await page.getByTestId("tap").waitFor();
});

step("records are shown live at a step", async () => {
  await page.getByTestId("tap-operator").selectOption("priced");
  await page.getByTestId("tap-toggle").click();
  await page.getByTestId("record").first().waitFor();
  assert.match(await page.getByTestId("record").first().innerText(), /price/);
  await page.getByTestId("record").first().locator("summary").click();
  await page.getByTestId("tap-toggle").click();
  await page.getByTestId("tap-clear").click();
  await page.getByTestId("record").first().waitFor({ state: "detached" });
});

step("a checkpoint and a savepoint are taken, and stand in the history", async () => {
  await tab("checkpoints");
  await page.getByTestId("trigger").click();
  assert.match(await confirm("checkpoint"), /chk-\d+/);
  savepoint = await act("savepoint").then(async () => (await api("/pipelines/orders/savepoints"))[0].path);
  await page.getByTestId("savepoint").first().waitFor();
  const { history } = await api("/pipelines/orders/checkpoints");
  const taken = history.find((h) => h.kind === "savepoint" && h.status === "completed");
  await page.getByTestId(`checkpoint-${taken.id.number}`).click();
  await page.getByTestId("attempt").waitFor();
  await page.getByTestId("timeline").waitFor();
  await shot(page, "checkpoint");
});

step("it is paused and goes on with the same job", async () => {
  const { status } = await orders();
  await act("pause");
  await state("paused");
  await act("resume");
  await state("running");
  assert.equal((await orders()).status.job, status.job);
});

step("it is restarted from its last checkpoint", async () => {
  const before = await orders();
  await act("restart");
  await state("running");
  await until("another start", async () => {
    const p = await orders();
    return p.state === "running" && (p.since !== before.since || p.status.generation !== before.status.generation);
  });
});

step("it is stopped with a savepoint, and a new job starts from an older one", async () => {
  const { status } = await orders();
  await act("stop", (dialog) => dialog.getByTestId("field-savepoint").check());
  await state("stopped");
  await act("start", (dialog) => dialog.getByTestId("field-from").fill(savepoint));
  await state("running").catch(async (e) => {
    throw new Error(`${e}; ${JSON.stringify(await orders())}`);
  });
  const now = await orders();
  assert.notEqual(now.status.job, status.job);
  assert.equal(now.status.restored.path, savepoint);
});

step("it is cancelled, and starts from its newest checkpoint when that is named", async () => {
  await until("a checkpoint", async () => (await orders()).checkpoint?.path);
  await act("cancel");
  await state("stopped");
  const { checkpoint } = await orders();
  await act("start", (dialog) => dialog.getByTestId("field-from").fill(checkpoint.path));
  await state("running");
});

step("a record that cannot be handled is shown with its place and reason, and is skipped", async () => {
  const at = await world("poison");
  await state("failed");
  await page.getByTestId("failure").waitFor();
  await shot(page, "failed");
  await tab("errors");
  const row = page.getByTestId("failure-row").first();
  await row.waitFor();
  assert.match(await row.innerText(), new RegExp(`${topic}/${at.partition}@${at.offset}`));
  await shot(page, "errors");
  await row.getByTestId("skip-row").click();
  await confirm("skip");
  await state("running");
});

step("a changed definition is taken over, and one with faults changes nothing", async () => {
  await tab("definition");
  await page.getByTestId("pick-effective").click();
  await page.getByTestId("pick-edit").click();
  await page.getByTestId("editor").fill(definition.replace("price > 1", "price > 2"));
  await page.getByTestId("save").click();
  await page.getByTestId("save-confirm").click();
  await until("the change runs", async () => (await api("/pipelines/orders/definition")).written.includes("price > 2") && (await orders()).state === "running");
  await world("break-file");
  await page.getByTestId("pending").or(page.getByTestId("definition-faults")).first().waitFor();
  await state("running");
  await shot(page, "definition-faults");
  await world("mend-file");
  await page.getByTestId("pending").waitFor({ state: "detached" });
});

step("a broker that is gone is told of in words until it is back", async () => {
  await world("halt");
  await page.locator("[data-testid=problem-broker], [data-testid=failure]").first().waitFor();
  await until("not ready", async () => (await fetch(`${url}/readyz`)).status === 503);
  await page.locator("[data-testid=ready].bad").waitFor();
  await shot(page, "broker-gone");
  await world("start");
  await until("ready", async () => (await fetch(`${url}/readyz`)).status === 200);
  await page.locator("[data-testid=ready].ok").waitFor();
  await state("running");
});

step("sources and sinks show their partitions and commits", async () => {
  await tab("sources");
  await page.getByTestId(`split-${topic}/0`).first().waitFor();
  await tab("sinks");
  await page.getByTestId("sink-out").waitFor();
});

step("events tell what was done, and by whom", async () => {
  await tab("events");
  for (const kind of ["paused", "resumed", "stopped", "cancelled", "failed", "savepoint"]) await page.getByTestId(`event-${kind}`).first().waitFor();
  await tab("logs");
  await page.getByTestId("line").first().waitFor();
});

step("the daemon reads its folder again", async () => {
  await page.getByTestId("nav-daemon").click();
  await page.getByTestId("reload").click();
  await page.getByTestId("reload-result").getByText("Taken over", { exact: true }).waitFor();
});

step("it is used by the keyboard alone", async () => {
  await visit(page, "/", "pipeline-orders");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await page.getByTestId("page-events").waitFor();
  await page.keyboard.press("?");
  await page.getByTestId("dialog-shortcuts").waitFor();
  await accessible(page);
  await page.keyboard.press("Escape");
  await page.getByTestId("dialog-shortcuts").waitFor({ state: "detached" });
  await page.keyboard.press("/");
});

const views = {
  pipelines: ["/", "pipeline-orders"],
  overview: ["/pipelines/orders", "graph"],
  checkpoints: ["/pipelines/orders/checkpoints", "history"],
  sources: ["/pipelines/orders/sources", `split-${topic}/0`],
  sinks: ["/pipelines/orders/sinks", "sink-out"],
  errors: ["/pipelines/orders/errors", "failures"],
  tap: ["/pipelines/orders/tap", "tap"],
  definition: ["/pipelines/orders/definition", "definition"],
  "pipeline-events": ["/pipelines/orders/events", "events"],
  "pipeline-logs": ["/pipelines/orders/logs", "logs"],
  new: ["/new", "editor"],
  events: ["/events", "events"],
  logs: ["/logs", "line"],
  daemon: ["/daemon", "last-reload"],
  missing: [`/pipelines/${nobody}`, "missing"],
  unknown: ["/no/such/page", "page-unknown"],
};

for (const theme of ["light", "dark"]) {
  for (const width of [360, 1024, 1920]) {
    step(`each page fits and is accessible: ${theme}, ${width} px`, async () => {
      const at = await open({ width, theme });
      const wrong = [];
      for (const [name, [path, testid]] of Object.entries(views)) {
        await visit(at, path, testid);
        await at.evaluate(() => document.fonts.ready);
        await shot(at, `${name}-${theme}-${width}`);
        for (const check of [fits, accessible]) await check(at).catch((e) => wrong.push(e.message));
      }
      await at.context().close();
      assert.deepEqual(wrong, []);
    });
  }
}

step("the theme is chosen, and remembered", async () => {
  await visit(page, "/", "theme");
  await page.getByTestId("theme").click();
  await page.getByTestId("theme").click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await page.reload();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
});

step("while the daemon is gone the page says so, and goes on when it is back", async () => {
  await visit(page, "/", "pipeline-orders");
  await world("kill-daemon");
  await page.getByTestId("connection-lost").waitFor();
  forgive();
  await world("start-daemon");
  await page.getByTestId("connection-lost").waitFor({ state: "detached" });
  await until("it runs again", async () => (await orders()).state === "running");
  await visit(page, "/pipelines/orders/checkpoints", "history");
  const { earlier } = await api("/pipelines/orders/checkpoints");
  assert.ok(earlier.length > 0, "the history of checkpoints ends with the process");
});

step("it is removed", async () => {
  await visit(page, "/pipelines/orders", "graph");
  await act("stop");
  await state("stopped");
  await act("delete");
  await page.getByText("No pipeline yet").waitFor();
});
