// Serves the built dashboard with the made-up daemon behind it, under the policy of the
// real one: node test/mock/server.mjs [PORT]. With TOKEN=… set it wants that token, with
// EMPTY=1 it has no pipeline.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { World } from "./world.mjs";

const port = Number(process.argv[2] ?? 7070);
const dist = fileURLToPath(new URL("../../dist", import.meta.url));
const world = new World();
if (process.env.EMPTY) world.pipelines = [];
const types = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const json = (res, status, body) => {
  res.writeHead(status, { "Content-Type": status < 400 ? "application/json" : "application/problem+json" });
  res.end(JSON.stringify(body));
};
const problem = (res, status, code, detail) => json(res, status, { type: "about:blank", title: code, status, detail, code });

function stream(req, res) {
  res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const send = (event, data) => res.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  const every = (period, f) => {
    f();
    const timer = setInterval(f, period);
    req.on("close", () => clearInterval(timer));
  };
  return { send, every };
}

const taken = (p, more = {}) => ({ pipeline: p.shape.name, job: "job-7f3a91c2", number: p.number, path: world.path(p, p.number), ...more });

const actions = {
  start: (p) => (world.set(p, "starting"), { moved: [] }),
  resume: (p) => (world.set(p, "starting"), {}),
  pause: (p) => (world.set(p, "stopping"), (p.next = "paused"), taken(p)),
  restart: (p) => (world.set(p, "restarting"), {}),
  cancel: (p) => (world.set(p, "stopped"), taken(p)),
  stop: (p, body) => (world.set(p, "stopping"), (p.next = "stopped"), taken(p, { drained: body.drain, path: body.savepoint ? `s3://checkpoints/etl/savepoints/${p.shape.name}-${p.number}` : world.path(p, p.number) })),
  skip: (p, body) => (world.set(p, "starting"), { moved: [{ split: `${body.topic}/${body.partition}`, before: body.offset, after: body.offset + 1 }] }),
  checkpoints: (p) => taken(p),
  savepoints: (p) => taken(p, { path: `s3://checkpoints/etl/savepoints/${p.shape.name}-${p.number}` }),
};

async function api(req, res, path, query) {
  if (process.env.TOKEN && req.headers.authorization !== `Bearer ${process.env.TOKEN}`) return problem(res, 401, "unauthorized", "This daemon wants a token.");
  let text = "";
  for await (const piece of req) text += piece;
  const body = text ? JSON.parse(text) : {};
  const [first, name, what, id] = path.split("/").map(decodeURIComponent);
  if (first === "daemon") return json(res, 200, world.daemon());
  if (first === "reload") return json(res, 200, world.daemon().last_reload);
  if (first === "validate") {
    const bad = body.definition.split("\n").findIndex((l) => l.includes("intervall"));
    return json(res, 200, { valid: bad < 0, pipeline: "x", faults: bad < 0 ? [] : [{ level: "error", line: bad + 1, column: 3, code: "E0103", text: "unknown field \"intervall\" in checkpoint", help: "did you mean interval?" }] });
  }
  if (first === "plan") return json(res, 200, { description: world.pipelines[0]?.shape.graph, text: "source bid    kafka    8 partitions\n  filter-1    keeps all fields\n  per-item    state kept, by auction\nsink hot-items  exactly once\n", change: "reload", why: "" });
  if (first === "events") return json(res, 200, world.events.slice(-200));
  if (first === "logs") return logs(req, res, query);
  if (first === "stream") {
    const { send, every } = stream(req, res);
    const p = query.get("pipeline") && world.find(query.get("pipeline"));
    let seen = world.eventNumber;
    return every(1000, () => {
      send("pipelines", world.pipelines.map((x) => world.pipeline(x)));
      if (p) {
        send("flow", world.flow(p));
        send("checkpoints", world.checkpoints(p));
      }
      for (const e of world.events.filter((x) => x.number > seen)) send("event", e);
      seen = world.eventNumber;
    });
  }
  if (first === "pipelines" && !name) return json(res, 200, world.pipelines.map((p) => world.pipeline(p)));
  const p = world.find(name);
  if (!p && req.method === "PUT") return json(res, 200, { name });
  if (!p) return problem(res, 404, "unknown", `this daemon has no pipeline ${JSON.stringify(name ?? path)}`);
  if (req.method === "POST") {
    const done = actions[what]?.(p, body);
    if (!done) return problem(res, 404, "unknown", "no such action");
    world.event(name, "action", "info", `${what} asked for`, "token ci");
    await new Promise((ok) => setTimeout(ok, 400));
    return json(res, 200, done);
  }
  if (req.method === "PUT") return problem(res, 403, "forbidden", "Your role is operate; to change a definition takes admin.");
  if (req.method === "DELETE") return json(res, 200, {});
  if (what === "definition") return json(res, 200, world.definition(p));
  if (what === "graph") return p.shape.graph ? json(res, 200, p.shape.graph) : problem(res, 409, "phase", "the file of the pipeline has faults, so there is no graph of it");
  if (what === "flow") return json(res, 200, world.flow(p));
  if (what === "failures") return json(res, 200, p.failures);
  if (what === "checkpoints" && id) return json(res, 200, [...p.attempts, ...p.earlier].find((a) => a.id.number === Number(id)));
  if (what === "checkpoints") return json(res, 200, world.checkpoints(p));
  if (what === "savepoints") return json(res, 200, [{ path: `s3://checkpoints/etl/savepoints/${name}-812`, number: 812, time: new Date(Date.now() - 7e6).toISOString(), size: 214e6, periodic: true }, { path: `s3://checkpoints/etl/savepoints/${name}-790`, number: 790, time: new Date(Date.now() - 9e7).toISOString(), size: 201e6, drained: true }]);
  if (what === "events") return json(res, 200, world.events.filter((e) => e.pipeline === name).slice(-200));
  if (what === "tap") {
    const { send, every } = stream(req, res);
    return every(200, () => send("record", world.tapped(p, query.get("operator"))));
  }
  return json(res, 200, world.pipeline(p));
}

const levels = ["DEBUG", "INFO", "WARN", "ERROR"];
function logs(req, res, query) {
  const least = levels.indexOf((query.get("level") || "DEBUG").toUpperCase());
  const fits = (l) => (!query.get("pipeline") || l.pipeline === query.get("pipeline")) && levels.indexOf(l.level) >= least;
  const { send, every } = stream(req, res);
  let seen = 0;
  every(500, () => {
    const fresh = world.logs.filter((l) => l.number > seen);
    for (const l of fresh.filter(fits).slice(-300)) send("line", l);
    seen = world.lineNumber;
  });
}

async function file(res, path) {
  const name = normalize(path).replace(/^[/.]+/, "") || "index.html";
  const body = (await readFile(join(dist, name)).catch(() => undefined)) ?? (name.startsWith("assets/") ? undefined : await readFile(join(dist, "index.html")).catch(() => undefined));
  if (!body) {
    res.writeHead(404).end("not found: run npm run build\n");
    return;
  }
  res.writeHead(200, { "Content-Type": types[extname(name)] ?? types[".html"], "Content-Security-Policy": policy });
  res.end(body);
}

createServer((req, res) => {
  const url = new URL(req.url, "http://localhost");
  const done = url.pathname.startsWith("/api/v1/") ? api(req, res, url.pathname.slice(8), url.searchParams) : file(res, url.pathname);
  done?.catch?.((error) => problem(res, 500, "failed", String(error)));
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}`));
