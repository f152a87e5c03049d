// Addresses of the views.

export const tabs = ["overview", "checkpoints", "sources", "sinks", "errors", "tap", "definition", "events", "logs"] as const;
export type Tab = (typeof tabs)[number];

export type Route =
  | { page: "pipelines" }
  | { page: "pipeline"; name: string; tab: Tab; rest: string }
  | { page: "new" }
  | { page: "events" }
  | { page: "logs" }
  | { page: "daemon" }
  | { page: "unknown"; path: string };

/** parse reads a path. */
export function parse(path: string): Route {
  const parts = path.split("/").filter(Boolean).map(decode);
  const [first, name, tab = "overview", ...rest] = parts;
  if (first === undefined || (first === "pipelines" && name === undefined)) return { page: "pipelines" };
  if (first === "pipelines" && name !== undefined && (tabs as readonly string[]).includes(tab)) {
    return { page: "pipeline", name, tab: tab as Tab, rest: rest.join("/") };
  }
  if (parts.length === 1 && (first === "new" || first === "events" || first === "logs" || first === "daemon")) return { page: first };
  return { page: "unknown", path };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** pathOf is the address of a pipeline's tab. */
export function pathOf(name: string, tab: Tab = "overview", rest = ""): string {
  const base = `/pipelines/${encodeURIComponent(name)}`;
  if (rest) return `${base}/${tab}/${encodeURIComponent(rest)}`;
  return tab === "overview" ? base : `${base}/${tab}`;
}
