// Server-sent events over fetch, which unlike EventSource sends the Authorization header.

export interface ServerEvent {
  event: string;
  data: string;
  id: string;
}

/** Parser takes the text of a stream in pieces that may end anywhere. */
export class Parser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id = "";

  /** feed returns the events that the piece completes. */
  feed(piece: string): ServerEvent[] {
    const out: ServerEvent[] = [];
    const text = this.rest + piece;
    let from = 0;
    for (;;) {
      const end = text.slice(from).search(/[\r\n]/);
      if (end < 0) break;
      const at = from + end;
      // A carriage return at the very end may be half of a line's end.
      if (text[at] === "\r" && at + 1 === text.length) break;
      this.line(text.slice(from, at), out);
      from = at + (text[at] === "\r" && text[at + 1] === "\n" ? 2 : 1);
    }
    this.rest = text.slice(from);
    return out;
  }

  private line(line: string, out: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) {
        out.push({ event: this.event || "message", data: this.data.join("\n"), id: this.id });
      }
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment, which keeps the connection alive
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
    else if (field === "id") this.id = value;
  }
}

/** backoff is how long to wait before try n (from 0), in ms: 0.5 s doubling to 15 s, and up to a quarter of it by chance. */
export function backoff(n: number, random: () => number = Math.random): number {
  const base = Math.min(15_000, 500 * 2 ** n);
  return Math.round(base * (1 + random() / 4));
}
