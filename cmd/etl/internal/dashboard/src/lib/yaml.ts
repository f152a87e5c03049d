// Colours for a definition, line by line. No parser: it marks what can be told from a line.

export type TokenKind = "key" | "string" | "number" | "word" | "comment" | "mark" | "variable" | "text";

export interface Token {
  kind: TokenKind;
  text: string;
}

const rules: [TokenKind, RegExp][] = [
  ["comment", /(?:^|(?<=\s))#.*/y],
  ["variable", /\$\{[^}]*\}/y],
  ["string", /"(?:[^"\\]|\\.)*"?|'(?:[^']|'')*'?/y],
  ["key", /[A-Za-z_][\w.-]*(?=\s*:(?:\s|$))/y],
  ["number", /(?<![\w.-])-?\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|d|KiB|MiB|GiB|KB|MB|GB|B)?(?![\w.-])/y],
  ["word", /(?<![\w.-])(?:true|false|null|and|or|not|in)(?![\w.-])/y],
  ["text", /[A-Za-z_][\w./-]*/y],
  ["mark", /[-:,[\]{}|>&*!]/y],
  ["text", /[\w./]+|\s+|./y],
];

/** tokens splits one line. */
export function tokens(line: string): Token[] {
  const out: Token[] = [];
  let at = 0;
  while (at < line.length) {
    let found = false;
    for (const [kind, rule] of rules) {
      rule.lastIndex = at;
      const match = rule.exec(line)?.[0];
      if (!match) continue;
      const last = out[out.length - 1];
      if (last && last.kind === kind && kind === "text") last.text += match;
      else out.push({ kind, text: match });
      at += match.length;
      found = true;
      break;
    }
    if (!found) {
      out.push({ kind: "text", text: line[at]! });
      at++;
    }
  }
  return out;
}

export interface Change {
  sign: " " | "+" | "-";
  text: string;
}

/** diff compares two texts line by line, by their longest common subsequence. */
export function diff(before: string, after: string): Change[] {
  const a = before.split("\n");
  const b = after.split("\n");
  const common: number[][] = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i]![j] = a[i] === b[j] ? common[i + 1]![j + 1]! + 1 : Math.max(common[i + 1]![j]!, common[i]![j + 1]!);
    }
  }
  const out: Change[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push({ sign: " ", text: a[i]! });
      i++;
      j++;
    } else if (i < a.length && (j >= b.length || common[i + 1]![j]! >= common[i]![j + 1]!)) {
      out.push({ sign: "-", text: a[i++]! });
    } else {
      out.push({ sign: "+", text: b[j++]! });
    }
  }
  return out;
}
