import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ApiError, api, movedOf } from "../api/client";
import type { Moved, Pipeline, Taken } from "../api/types";
import { full } from "../lib/format";
import type { Action } from "../lib/can";
import { Dialog } from "./dialog";
import type { IconName } from "./icon";
import { Icon } from "./icon";
import { Loading, Notice, Path, Scroll } from "./parts";
import { go } from "./router";

// Everything that is asked of a pipeline goes through one dialog: it says what will
// happen, asks, and then says what was done.

/** Preset fills a form in, such as with the record that failed. */
export interface Preset {
  topic?: string;
  partition?: number;
  offset?: number;
  from?: string;
}

const asked = signal<{ action: Action; pipeline: Pipeline; preset: Preset } | undefined>(undefined);

/** ask opens the dialog of an action. */
export function ask(action: Action, pipeline: Pipeline, preset: Preset = {}): void {
  asked.value = { action, pipeline, preset };
}

interface Done {
  text: string;
  taken?: Taken | null;
  moved?: Moved[];
}

interface ActionText {
  label: string; // of buttons
  icon: IconName;
  danger?: boolean;
  /** will says what happens. */
  will: string;
}

export const actionTexts: Record<Action, ActionText> = {
  start: { label: "Start", icon: "run", will: "A new job begins. Without a choice below it goes on from the newest checkpoint of the last one." },
  resume: { label: "Resume", icon: "run", will: "The same job goes on from its last checkpoint. Nothing is lost or doubled." },
  pause: { label: "Pause", icon: "pause", will: "A last checkpoint is taken, then all tasks end. Resume goes on with the same job, from exactly there." },
  restart: { label: "Restart", icon: "again", will: "A last checkpoint is taken, all tasks end, and start again from it. Results stop for as long as that takes." },
  stop: { label: "Stop", icon: "stop", danger: true, will: "The job ends with a last checkpoint, or with a savepoint. The next start begins a new job from it." },
  cancel: { label: "Cancel", icon: "cross", danger: true, will: "The job ends at once, without a checkpoint. What was read since the last one is not published, and is read again by a start from it." },
  checkpoint: { label: "Checkpoint", icon: "flag", will: "A checkpoint is taken now, beside those of the interval. Records flow on." },
  savepoint: { label: "Savepoint", icon: "save", will: "A savepoint is a checkpoint that is yours: it is never removed by itself, and a later version of the pipeline can start from it. Records flow on." },
  skip: { label: "Skip a record", icon: "skip", danger: true, will: "The pipeline starts behind one record of a partition. The record is not handled, and is in no result. This is written to the audit log." },
  delete: { label: "Delete", icon: "trash", danger: true, will: "The job ends with a last checkpoint and the pipeline's file is removed from the folder. Its checkpoints and what its sinks have written stay." },
};

/** ActionDialog stands once in the page. */
export function ActionDialog() {
  const what = asked.value;
  if (!what) return null;
  return <Asked key={`${what.action}/${what.pipeline.name}`} {...what} />;
}

function close(): void {
  asked.value = undefined;
}

type Stage = { at: "asking"; error?: ApiError } | { at: "working" } | { at: "done"; done: Done };

function Asked({ action, pipeline, preset }: { action: Action; pipeline: Pipeline; preset: Preset }) {
  const [stage, setStage] = useState<Stage>({ at: "asking" });
  const text = actionTexts[action];
  const title = `${text.label} ${pipeline.name}`;
  const submit = async (form: HTMLFormElement): Promise<void> => {
    const data = new FormData(form);
    setStage({ at: "working" });
    try {
      const done = await run(action, pipeline.name, data);
      setStage({ at: "done", done });
      if (action === "delete") go("/");
    } catch (error) {
      setStage({ at: "asking", error: error instanceof ApiError ? error : new ApiError(0, String(error)) });
    }
  };
  return (
    <Dialog title={title} close={close} testid={`dialog-${action}`}>
      {stage.at === "done" ? (
        <Result title={title} done={stage.done} />
      ) : (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            void submit(e.currentTarget);
          }}
        >
          <h2>
            {text.label} <span class="muted">{pipeline.name}</span>
          </h2>
          <p>{text.will}</p>
          <Fields action={action} pipeline={pipeline} preset={preset} />
          {stage.at === "asking" && stage.error && (
            <Notice tone="bad" title={stage.error.status === 403 ? "Not allowed" : "It did not work"} live testid="action-error">
              <p class="text">{stage.error.message}</p>
            </Notice>
          )}
          {stage.at === "working" && <Loading what={action === "stop" || action === "savepoint" ? "Waiting for the checkpoint to be proven" : "Working"} />}
          <footer>
            <button type="button" class="btn" onClick={close} data-testid="action-close">
              {stage.at === "working" ? "Leave it running" : "Close"}
            </button>
            <button type="submit" class={`btn ${text.danger ? "danger" : "primary"}`} disabled={stage.at === "working"} data-testid="action-confirm">
              <Icon name={text.icon} />
              {text.label}
            </button>
          </footer>
        </form>
      )}
    </Dialog>
  );
}

function Result({ title, done }: { title: string; done: Done }) {
  const { taken, moved } = done;
  return (
    <div class="dialog" data-testid="action-result">
      <h2>{title}</h2>
      <Notice tone="ok" title={done.text} live>
        {taken?.number ? (
          <p class="muted">
            checkpoint {taken.number}
            {taken.drained && ", drained"}
          </p>
        ) : null}
      </Notice>
      {taken?.warning && <Notice tone="warn" title={taken.warning} />}
      {taken?.path && (
        <>
          <Path path={taken.path} />
          <p class="muted">
            A start goes on from it with <code>-s {taken.path}</code>
          </p>
        </>
      )}
      {moved && moved.length > 0 && (
        <Scroll label="Positions that were moved">
          <table>
            <caption class="visually-hidden">Positions that were moved</caption>
            <thead>
              <tr>
                <th scope="col">Split</th>
                <th scope="col" class="num">
                  Before
                </th>
                <th scope="col" class="num">
                  After
                </th>
              </tr>
            </thead>
            <tbody>
              {moved.map((m) => (
                <tr key={m.split}>
                  <th scope="row">{m.split}</th>
                  <td class="num">{full(m.before)}</td>
                  <td class="num">{full(m.after)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <footer>
        <button type="button" class="btn primary" onClick={close} autoFocus data-testid="action-close">
          Close
        </button>
      </footer>
    </div>
  );
}

function Field({ name, label, help, value, required = false, numeric = false, placeholder }: { name: string; label: string; help?: string; value?: string; required?: boolean; numeric?: boolean; placeholder?: string }) {
  return (
    <label class="field">
      <span>{label}</span>
      <input class="input" name={name} defaultValue={value ?? ""} required={required} placeholder={placeholder} inputMode={numeric ? "numeric" : undefined} pattern={numeric ? "[0-9]+" : undefined} autocomplete="off" spellcheck={false} data-testid={`field-${name}`} />
      {help && <span class="muted">{help}</span>}
    </label>
  );
}

function Check({ name, label, help }: { name: string; label: string; help: string }) {
  return (
    <label class="check">
      <input type="checkbox" name={name} data-testid={`field-${name}`} />
      <span>
        {label}
        <span class="muted"> – {help}</span>
      </span>
    </label>
  );
}

function Fields({ action, pipeline, preset }: { action: Action; pipeline: Pipeline; preset: Preset }): ComponentChildren {
  switch (action) {
    case "start":
      return (
        <>
          {/* After a cancel the daemon wants to be told from where to go on. */}
          <Field name="from" label="From" value={preset.from ?? (pipeline.status?.outcome === "cancelled" ? (pipeline.status.last_checkpoint ?? "none") : "")} placeholder={pipeline.checkpoint?.path ?? "the newest checkpoint"} help="Path of a checkpoint or savepoint, or none for a start without state." />
          <details open={preset.from !== undefined}>
            <summary>More options</summary>
            <div class="stack tight">
              <Check name="claim" label="Claim" help="the new job owns what it starts from, and removes it once it is not needed" />
              <Check name="allow_non_restored_state" label="Drop state without an owner" help="of steps that the definition no longer has" />
              <Check name="accept_duplicates" label="Accept duplicates" help="where results behind this checkpoint are published already" />
              <Check name="allow_drained" label="Allow a drained one" help="windows that were driven to their end begin anew" />
              <Field name="set_offsets" label="Set offsets" placeholder="orders/0=1200 orders/1=980" help="Moves positions on purpose, state kept. Written to the audit log." />
            </div>
          </details>
        </>
      );
    case "stop":
      return (
        <>
          <Check name="savepoint" label="With a savepoint" help="keeps the state for an upgrade or another place" />
          <Check name="drain" label="Drain" help="event time is driven to its end first: every window and timer fires, and the job is meant to be over" />
          <Field name="dir" label="Folder of the savepoint" placeholder="as the definition says" />
        </>
      );
    case "savepoint":
      return <Field name="dir" label="Folder" placeholder="as the definition says" help="An absolute path or an address of storage, such as s3://bucket/savepoints." />;
    case "skip":
      return (
        <div class="grid">
          <Field name="topic" label="Topic" value={preset.topic ?? ""} required />
          <Field name="partition" label="Partition" value={preset.partition?.toString() ?? ""} numeric required />
          <Field name="offset" label="Offset of the record" value={preset.offset?.toString() ?? ""} numeric required />
        </div>
      );
    default:
      return null;
  }
}

const textOf = (data: FormData, name: string): string => String(data.get(name) ?? "").trim();

/** offsetsOf reads topic/partition=offset, several apart by spaces or commas. */
export function offsetsOf(text: string): Record<string, number> {
  const out: Record<string, number> = {};
  for (const one of text.split(/[\s,]+/).filter(Boolean)) {
    const match = /^(.+\/\d+)=(\d+)$/.exec(one);
    if (!match) throw new ApiError(0, `${one} is no offset: write topic/partition=offset, such as orders/0=1200`);
    out[match[1]!] = Number(match[2]);
  }
  return out;
}

async function run(action: Action, name: string, data: FormData): Promise<Done> {
  const on = (field: string): boolean => data.get(field) !== null;
  switch (action) {
    case "start": {
      const offsets = offsetsOf(textOf(data, "set_offsets"));
      const from = textOf(data, "from");
      const flags = Object.fromEntries(["claim", "allow_non_restored_state", "accept_duplicates", "allow_drained"].filter(on).map((f) => [f, true]));
      const moved = movedOf(await api.start(name, { ...(from ? { from } : {}), ...flags, ...(Object.keys(offsets).length ? { set_offsets: offsets } : {}) }));
      return { text: "A new job has begun.", moved };
    }
    case "resume":
      await api.resume(name);
      return { text: "The job goes on." };
    case "pause":
      return { text: "The pipeline is paused.", taken: await api.pause(name) };
    case "restart":
      await api.restart(name);
      return { text: "The pipeline starts again." };
    case "stop": {
      const dir = textOf(data, "dir");
      const taken = await api.stop(name, { savepoint: on("savepoint") || dir !== "", drain: on("drain"), ...(dir ? { dir } : {}) });
      return { text: on("savepoint") || dir ? "The job has ended with a savepoint." : "The job has ended with a checkpoint.", taken };
    }
    case "cancel":
      return { text: "The job was cancelled.", taken: await api.cancel(name) };
    case "checkpoint":
      return { text: "The checkpoint is complete and its commits are proven.", taken: await api.checkpoint(name) };
    case "savepoint":
      return { text: "The savepoint is complete.", taken: await api.savepoint(name, textOf(data, "dir")) };
    case "skip": {
      const moved = movedOf(await api.skip(name, textOf(data, "topic"), Number(textOf(data, "partition")), Number(textOf(data, "offset"))));
      return { text: "The pipeline starts behind that record.", moved };
    }
    case "delete":
      await api.remove(name);
      return { text: "The pipeline's file is removed." };
  }
}
