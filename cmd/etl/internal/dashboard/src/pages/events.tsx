import { api } from "../api/client";
import type { Event } from "../api/types";
import { pathOf } from "../lib/route";
import { newest } from "../live";
import { Icon } from "../ui/icon";
import { Card, Empty, Loading, Time, toneOf } from "../ui/parts";
import { Link } from "../ui/router";
import { useResource } from "../ui/use";
import { words } from "../lib/format";

/** EventsPage is what has happened to the daemon and all its pipelines. */
export function EventsPage() {
  return (
    <div class="stack">
      <div class="head">
        <h1>Events</h1>
      </div>
      <EventList pipeline="" />
    </div>
  );
}

/** EventList shows the newest first, of one pipeline or of all. */
export function EventList({ pipeline }: { pipeline: string }) {
  const before = useResource(`events ${pipeline}`, (abort) => api.events(pipeline, abort));
  if (before.error && !before.value) {
    return (
      <Card>
        <Empty title="The events could not be read">
          <p>{before.error.message}</p>
        </Empty>
      </Card>
    );
  }
  if (!before.value) return <Loading what="Reading the events" />;
  const all = together(newest.value.filter((e) => !pipeline || e.pipeline === pipeline), before.value);
  return (
    <Card pad={false} testid="events">
      {all.length === 0 ? (
        <Empty title="Nothing has happened yet" />
      ) : (
        <ul class="feed">
          {all.map((e) => (
            <li key={e.number} data-testid={`event-${e.kind}`}>
              <Time at={e.time} />
              <span class={`tone-${toneOf(e.level)}`}>
                <Icon name={e.level === "error" ? "error" : e.level === "warning" ? "warn" : "info"} />
              </span>
              <span>
                {!pipeline && e.pipeline && (
                  <>
                    <Link href={pathOf(e.pipeline)}>{e.pipeline}</Link>{" "}
                  </>
                )}
                {e.text}{" "}
                <span class="muted">
                  {words(e.kind)}
                  {e.actor && <> · by {e.actor}</>}
                </span>
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

/** together has each event once, newest first. */
function together(live: Event[], before: Event[]): Event[] {
  const seen = new Map<number, Event>();
  for (const e of [...before, ...live]) seen.set(e.number, e);
  return [...seen.values()].sort((a, b) => b.number - a.number);
}
