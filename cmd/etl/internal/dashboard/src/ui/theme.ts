import { signal } from "@preact/signals";

// Light, dark, or as the system has it. What was picked is remembered in the browser.

export type Theme = "auto" | "light" | "dark";

const key = "sluice.theme";
const stored = document.documentElement.dataset["theme"];

export const theme = signal<Theme>(stored === "dark" || stored === "light" ? stored : "auto");
/** shade changes whenever colours do, for what is drawn on a canvas. */
export const shade = signal(0);

export function setTheme(next: Theme): void {
  theme.value = next;
  if (next === "auto") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = next;
  try {
    if (next === "auto") localStorage.removeItem(key);
    else localStorage.setItem(key, next);
  } catch {
    // Storage is switched off: it lasts as long as the page.
  }
  shade.value++;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shade.value++);

/** color is what a custom property comes to in the present theme. */
export function color(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
