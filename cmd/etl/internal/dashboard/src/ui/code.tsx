import { diff, tokens } from "../lib/yaml";
import { Scroll } from "./parts";

/** Code shows a definition with its lines numbered. */
export function Code({ text, label }: { text: string; label: string }) {
  return (
    <Scroll label={label} class="code">
      {text.replace(/\n$/, "").split("\n").map((line, i) => (
        <span class="l" key={i}>
          {tokens(line).map((t, j) => (t.kind === "text" ? t.text : <span key={j} class={`k-${t.kind}`}>{t.text}</span>))}
        </span>
      ))}
    </Scroll>
  );
}

/** Diff shows what changes from one text to another. */
export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  return (
    <Scroll label={label} class="code diff">
      {diff(before.replace(/\n$/, ""), after.replace(/\n$/, "")).map((c, i) => (
        <span key={i} class={`l ${c.sign === "+" ? "add" : c.sign === "-" ? "del" : ""}`} data-sign={c.sign}>
          {c.text}
        </span>
      ))}
    </Scroll>
  );
}
