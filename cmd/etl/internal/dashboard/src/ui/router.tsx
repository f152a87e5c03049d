import { computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { parse } from "../lib/route";

// Addresses change without loading the page again.

const path = signal(location.pathname);

/** route is the view that is shown. */
export const route = computed(() => parse(path.value));

/** search are the parameters of the address. */
export const search = signal(new URLSearchParams(location.search));

addEventListener("popstate", take);

function take(): void {
  path.value = location.pathname;
  search.value = new URLSearchParams(location.search);
}

/** go shows the view at an address; keep replaces the present one in the history. */
export function go(to: string, keep = false): void {
  if (to === location.pathname + location.search) return;
  if (keep) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  const before = path.value.split("/").slice(0, 4).join("/");
  take();
  if (before !== path.value.split("/").slice(0, 4).join("/")) scrollTo(0, 0);
}

interface LinkProps {
  href: string;
  current?: boolean;
  class?: string;
  title?: string;
  children: ComponentChildren;
  "aria-label"?: string;
  "data-testid"?: string;
}

export function Link({ href, current = false, ...rest }: LinkProps) {
  return (
    <a
      {...rest}
      href={href}
      aria-current={current ? "page" : undefined}
      onClick={(e) => {
        if (e.metaKey || e.ctrlKey || e.shiftKey || e.altKey || e.button !== 0) return;
        e.preventDefault();
        go(href);
      }}
    />
  );
}
