import { useState } from "preact/hooks";
import { pathOf } from "../lib/route";
import { Editor } from "../ui/editor";
import { Card } from "../ui/parts";
import { go } from "../ui/router";

const skeleton = `pipeline: my-pipeline
source:
  kafka: {brokers: [localhost:9092], topics: [my-topic]}
transforms:
  - filter: "true"
sink:
  kafka: {brokers: [localhost:9092], topic: my-results}
checkpoint: {storage: "file:///var/lib/etl/checkpoints", interval: 10s}
`;

/** NewPage writes a new pipeline into the daemon's folder. */
export function NewPage() {
  const [text, setText] = useState(skeleton);
  return (
    <div class="stack">
      <div class="head">
        <h1>New pipeline</h1>
      </div>
      <Card pad={false} title="Definition">
        <Editor text={text} setText={setText} name={(v) => v?.pipeline || (/^pipeline:\s*["']?([\w.-]+)/m.exec(text)?.[1] ?? "")} saved={(name) => go(pathOf(name))} />
      </Card>
    </div>
  );
}
