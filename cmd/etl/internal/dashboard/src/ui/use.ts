import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";

/** Resource is what was asked for once. */
export interface Resource<T> {
  value: T | undefined;
  error: ApiError | undefined;
  reload: () => void;
}

/**
 * useResource asks when a page opens, when the key changes, and when told to. It asks again when the mark changes, and
 * shows what is there until the new answer.
 */
export function useResource<T>(key: string, ask: (abort: AbortSignal) => Promise<T>, mark = ""): Resource<T> {
  const [state, setState] = useState<{ key: string; value?: T; error?: ApiError }>({ key });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    ask(abort.signal).then(
      (value) => !abort.signal.aborted && setState({ key, value }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const problem = error instanceof ApiError ? error : new ApiError(0, String(error));
        setState((s) => (s.key === key && s.value !== undefined ? { ...s, error: problem } : { key, error: problem }));
      },
    );
    return () => abort.abort();
  }, [key, mark, round]);
  const fits = state.key === key;
  return { value: fits ? state.value : undefined, error: fits ? state.error : undefined, reload: () => setRound((n) => n + 1) };
}

/** useWidth is how wide an element is, in pixels; 0 until it is there. */
export function useWidth<E extends HTMLElement>(): [{ current: E | null }, number] {
  const ref = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!ref.current) return;
    const watch = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return [ref, width];
}
