// Signs of 16 pixels, drawn for this dashboard. They stand beside words, never alone.

const shapes = {
  run: "M5 3.5v9l7-4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  stop: "M4 4h8v8H4z",
  done: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  warn: "M8 2.2 14.5 13.5h-13zM8 6.5v3.2M8 11.6v.1",
  error: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 4.8v4M8 11v.1",
  info: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 7.4v3.8M8 4.9v.1",
  flag: "M4 14V2.5h8L10 5.5l2 3H4",
  save: "M3 2.5h8l2 2v9H3zM5.5 2.5v3.5h4.5V2.5M5.5 13.5V9.5h5v4",
  source: "M2 8h7M6 4.5 9.5 8 6 11.5M13 2.5v11",
  step: "M3 3h10v10H3zM6 8h4",
  sink: "M2 8h7M6 4.5 9.5 8 6 11.5M10 2.5h3.5v11H10",
  chevron: "M6 3.5 10.5 8 6 12.5",
  more: "M3.5 8v.01M8 8v.01M12.5 8v.01",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1v1.4M8 13.6V15M1 8h1.4M13.6 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.5 9.6A6 6 0 0 1 6.4 2.5a6 6 0 1 0 7.1 7.1z",
  auto: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 2v12M8 5.2l4.6-.2M8 8h6M8 10.8l4.6.2",
  keys: "M1.5 4h13v8.5h-13zM4 7v.01M6.7 7v.01M9.4 7v.01M12 7v.01M5 10h6",
  key: "M9.5 9.5a3.5 3.5 0 1 0-3-3L2 11v3h3v-2h2v-2z",
  trash: "M2.5 4.5h11M6 4.5V2.5h4v2M4 4.5l.7 9h6.6l.7-9",
  skip: "M3 3.5v9L9 8zM12.5 3.5v9",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3z",
} as const;

export type IconName = keyof typeof shapes;

const solid: ReadonlySet<IconName> = new Set(["run", "stop"]);
const dots: ReadonlySet<IconName> = new Set(["more", "keys", "warn", "error", "info"]);

export function Icon({ name, spin = false }: { name: IconName; spin?: boolean }) {
  const filled = solid.has(name);
  return (
    <svg class={spin ? "spin" : ""} width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path
        d={shapes[name]}
        fill={filled ? "currentColor" : "none"}
        stroke="currentColor"
        stroke-width={name === "more" ? 2.4 : dots.has(name) ? 1.6 : 1.5}
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
