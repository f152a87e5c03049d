import { useRef, useState } from "preact/hooks";
import { ApiError, api } from "../api/client";
import type { Fault, Plan, Validation } from "../api/types";
import { plural } from "../lib/format";
import { Dialog } from "./dialog";
import { Icon } from "./icon";
import { Loading, Notice, Scroll, toneOf } from "./parts";

type Answer = { of: "validation"; validation: Validation } | { of: "plan"; plan: Plan } | { of: "saved"; text: string } | { of: "error"; error: ApiError; verb: string } | { of: "working"; text: string };

/** Editor changes a definition: it is validated and planned by the daemon, and saved where the role allows. */
export function Editor({ text, setText, name, saved }: { text: string; setText: (text: string) => void; name: (validation: Validation | undefined) => string; saved: (name: string) => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const [answer, setAnswer] = useState<Answer | undefined>(undefined);
  const [saving, setSaving] = useState("");

  const ask = async (verb: string, work: () => Promise<Answer>): Promise<void> => {
    setAnswer({ of: "working", text: verb });
    try {
      setAnswer(await work());
    } catch (error) {
      setAnswer({ of: "error", verb, error: error instanceof ApiError ? error : new ApiError(0, String(error)) });
    }
  };
  const validate = (): Promise<void> => ask("Validating", async () => ({ of: "validation", validation: await api.validate(text) }));
  const plan = (): Promise<void> => ask("Planning", async () => ({ of: "plan", plan: await api.plan(text) }));
  const save = (): Promise<void> =>
    ask("Saving", async () => {
      const validation = await api.validate(text);
      if (!validation.valid) return { of: "validation", validation };
      const to = name(validation);
      if (!to) throw new ApiError(0, "The definition names no pipeline: begin it with pipeline: NAME");
      setSaving(to);
      return { of: "validation", validation };
    });
  const write = (to: string): Promise<void> => {
    setSaving("");
    return ask("Saving", async () => {
      await api.put(to, text);
      saved(to);
      return { of: "saved", text: `${to} is saved and taken over.` };
    });
  };
  const jump = (f: Fault): void => {
    const at = text.split("\n").slice(0, f.line - 1).reduce((n, l) => n + l.length + 1, 0) + Math.max(0, f.column - 1);
    area.current?.focus();
    area.current?.setSelectionRange(at, at);
  };
  return (
    <>
      <label class="visually-hidden" for="definition-text">
        Definition, YAML
      </label>
      <textarea id="definition-text" ref={area} class="editor" spellcheck={false} autocapitalize="off" value={text} onInput={(e) => setText(e.currentTarget.value)} data-testid="editor" />
      <div class="body stack">
        <div class="row">
          <button type="button" class="btn" onClick={() => void validate()} data-testid="validate">
            <Icon name="done" /> Validate
          </button>
          <button type="button" class="btn" onClick={() => void plan()} data-testid="plan">
            <Icon name="step" /> Plan
          </button>
          <button type="button" class="btn primary" onClick={() => void save()} data-testid="save">
            <Icon name="save" /> Save …
          </button>
        </div>
        <div aria-live="polite" data-testid="editor-answer">
          {answer && <AnswerView answer={answer} jump={jump} />}
        </div>
      </div>
      {saving && (
        <Dialog title={`Save ${saving}`} close={() => setSaving("")} testid="dialog-save">
          <div class="dialog">
            <h2>
              Save <span class="muted">{saving}</span>
            </h2>
            <p>The file is written into the daemon's folder and taken over: where the pipeline runs it takes a checkpoint, switches, and goes on from it. If the new one does not start, the old one goes on.</p>
            <footer>
              <button type="button" class="btn" onClick={() => setSaving("")}>
                Close
              </button>
              <button type="button" class="btn primary" onClick={() => void write(saving)} data-testid="save-confirm">
                Save and take over
              </button>
            </footer>
          </div>
        </Dialog>
      )}
    </>
  );
}

function AnswerView({ answer, jump }: { answer: Answer; jump: (f: Fault) => void }) {
  switch (answer.of) {
    case "working":
      return <Loading what={answer.text} />;
    case "error":
      return (
        <Notice tone="bad" title={answer.error.status === 403 ? "Not allowed" : "It did not work"}>
          <p class="text">{answer.error.message}</p>
        </Notice>
      );
    case "saved":
      return <Notice tone="ok" title={answer.text} />;
    case "validation": {
      const faults = answer.validation.faults ?? [];
      return (
        <div class="stack tight">
          <Notice tone={answer.validation.valid ? "ok" : "bad"} title={answer.validation.valid ? (faults.length ? `Valid, with ${plural(faults.length, "warning")}` : "Valid") : plural(faults.length, "fault")} />
          {faults.length > 0 && (
            <ul class="faults">
              {faults.map((f, i) => (
                <li key={i}>
                  <button type="button" onClick={() => jump(f)} data-testid="fault">
                    <span class={`tone-${toneOf(f.level)}`}>
                      <Icon name={f.level === "error" ? "error" : "warn"} />
                    </span>
                    <span>
                      <span class="mono">
                        {f.line}:{f.column}
                      </span>{" "}
                      {f.text} {f.help && <span class="muted">{f.help}</span>} {f.code && <span class="mono muted">{f.code}</span>}
                    </span>
                  </button>
                </li>
              ))}
            </ul>
          )}
        </div>
      );
    }
    case "plan":
      return (
        <div class="stack tight">
          {answer.plan.change && (
            <Notice tone={answer.plan.change === "refused" ? "bad" : "info"} title={`Taking it over: ${answer.plan.change}`}>
              {answer.plan.why && <p class="text">{answer.plan.why}</p>}
            </Notice>
          )}
          <Scroll label="Plan" class="code bare">
            {answer.plan.text.replace(/\n$/, "").split("\n").map((l, i) => (
              <span class="l" key={i}>
                {l}
              </span>
            ))}
          </Scroll>
        </div>
      );
  }
}
