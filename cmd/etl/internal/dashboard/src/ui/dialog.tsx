import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

/** Dialog is modal, closes by Escape, and gives the focus back to where it was. */
export function Dialog({ title, close, children, testid }: { title: string; close: () => void; children: ComponentChildren; testid: string }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      aria-label={title}
      data-testid={testid}
      onCancel={(e) => {
        e.preventDefault();
        close();
      }}
      onClick={(e) => e.target === ref.current && close()}
    >
      {children}
    </dialog>
  );
}
