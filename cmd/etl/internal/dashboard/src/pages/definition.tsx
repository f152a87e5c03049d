import { useState } from "preact/hooks";
import { api } from "../api/client";
import type { Definition, Pipeline } from "../api/types";
import { Code, Diff } from "../ui/code";
import { Editor } from "../ui/editor";
import { Card, Copy, Empty, Loading, Notice, Segments } from "../ui/parts";
import { useResource } from "../ui/use";

type View = "written" | "effective" | "change" | "edit";

/** DefinitionTab is the pipeline's file, as written and as it counts, and a place to change it. */
export function DefinitionTab({ p }: { p: Pipeline }) {
  const definition = useResource(`definition ${p.name}`, (abort) => api.definition(p.name, abort), `${p.state} ${p.pending ?? ""} ${p.status?.generation ?? 0}`);
  const [view, setView] = useState<View | undefined>(undefined);
  const [draft, setDraft] = useState<string | undefined>(undefined);
  const d = definition.value;
  if (!d) {
    return definition.error ? (
      <Card>
        <Empty title="There is no definition to show">
          <p>{definition.error.message}</p>
        </Empty>
      </Card>
    ) : (
      <Loading what="Reading the definition" />
    );
  }
  const changed = Boolean(d.running && d.running !== d.written);
  const shown = view ?? (changed ? "change" : "written");
  return (
    <Card
      pad={false}
      testid="definition"
      title={<span class="mono">{d.file}</span>}
      right={
        <>
          <Segments
            label="View"
            value={shown}
            pick={setView}
            options={[...(changed ? ([["change", "Pending change"]] as const) : []), ["written", "As written"], ["effective", "Effective"], ["edit", "Edit"]]}
          />
          <Copy text={shown === "effective" ? d.effective : d.written} label="Copy text" />
        </>
      }
    >
      {d.faults && (
        <div class="body">
          <Notice tone="bad" title="The file has faults" testid="definition-faults">
            <pre class="text">{d.faults}</pre>
          </Notice>
        </div>
      )}
      <Body d={d} view={shown} draft={draft ?? d.written} setDraft={setDraft} p={p} saved={() => (setDraft(undefined), definition.reload())} />
    </Card>
  );
}

function Body({ d, view, draft, setDraft, p, saved }: { d: Definition; view: View; draft: string; setDraft: (text: string) => void; p: Pipeline; saved: () => void }) {
  switch (view) {
    case "written":
      return <Code text={d.written} label="Definition as written" />;
    case "effective":
      return d.effective ? <Code text={d.effective} label="Definition as it counts" /> : <Empty title="Nothing counts of it while it has faults" />;
    case "change":
      return <Diff before={d.running ?? ""} after={d.written} label="What differs between the text that runs and the file" />;
    case "edit":
      return <Editor text={draft} setText={setDraft} name={() => p.name} saved={saved} />;
  }
}
