import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Fault } from "./api.ts";

/** How often data on the screen is reloaded. */
const REFRESH_MS = 15_000;
/** The delay after the server was unreachable. */
const OFFLINE_MS = 5_000;
/** The times after a change at which data is reloaded. */
const SOON_MS = [1_000, 3_000, 6_000];

export interface Loaded<T> {
  data: T | null;
  /** The failure of the last try, if it failed; the data is from an earlier one then. */
  fault: Fault | null;
  /** Reloads now, and a few times in the next seconds. */
  reload(): void;
}

/** Maximum number of places whose data is remembered. */
const REMEMBERED_MAX = 40;

/** The data that was loaded last, by key, so that a reader who goes back sees it at once, at the same place. */
const remembered = new Map<string, unknown>();

function remember(key: string, data: unknown): void {
  remembered.delete(key);
  remembered.set(key, data);
  const [oldest] = remembered.keys();
  if (remembered.size > REMEMBERED_MAX && oldest !== undefined) remembered.delete(oldest);
}

/** Forgets all data, because it belongs to a session that has been replaced. */
export function forgetLoaded(): void {
  remembered.clear();
}

/** Reloads what the page shows and may have changed. */
const reloads = new Set<() => void>();

/** Reloads everything on the screen, after a change: now, and a few times in the next seconds. */
export function reloadAll(): void {
  for (const reload of reloads) reload();
}

/**
 * Keeps the result of `load` on the screen up to date: it is reloaded at a slow interval while the
 * page is visible, when the page becomes visible again, and when the network returns.
 *
 * @param key names what is loaded, among all that the page loads. Another key loads immediately; until
 *   then there is no data, unless it was loaded before.
 */
export function useLoad<T>(load: () => Promise<T>, key: string, refreshMs = REFRESH_MS): Loaded<T> {
  const [state, setShown] = useState<{ key: string; data: T | null; fault: Fault | null } | null>(
    null,
  );
  const known = (remembered.get(key) as T | undefined) ?? null;
  const shown = state?.key === key ? state : { key, data: known, fault: null };
  const reload = useRef(() => {});
  const loadNow = useRef(load);
  loadNow.current = load;

  useEffect(() => {
    let timer = 0;
    let latest = 0;
    let soon: number[] = [];
    let dueAt = 0;
    const wait = (ms: number) => {
      clearTimeout(timer);
      dueAt = Date.now() + ms;
      timer = setTimeout(() => document.visibilityState === "visible" && run(), ms);
    };
    const run = async () => {
      clearTimeout(timer);
      const turn = ++latest;
      try {
        const data = await loadNow.current();
        if (turn !== latest) return;
        remember(key, data);
        setShown({ key, data, fault: null });
        wait(soon.shift() ?? refreshMs);
      } catch (error) {
        if (turn !== latest) return;
        if (!(error instanceof Fault)) throw error;
        const data = (remembered.get(key) as T | undefined) ?? null;
        setShown({ key, data, fault: error });
        if (error.status === null) wait(OFFLINE_MS);
        else wait((error.retryAfterSeconds ?? 0) * 1000 || REFRESH_MS);
      }
    };
    const resume = () => document.visibilityState === "visible" && Date.now() >= dueAt && run();
    reload.current = () => {
      soon = [...SOON_MS];
      void run();
    };
    const reloadSoon = reload.current;
    reloads.add(reloadSoon);
    document.addEventListener("visibilitychange", resume);
    addEventListener("online", run);
    void run();
    return () => {
      latest = -1;
      reload.current = () => {};
      reloads.delete(reloadSoon);
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", resume);
      removeEventListener("online", run);
    };
  }, [key, refreshMs]);

  return {
    data: shown.data,
    fault: shown.fault,
    reload: useCallback(() => reload.current(), []),
  };
}

export interface Action {
  isBusy: boolean;
  fault: Fault | null;
  /** Runs `work` unless something is in progress; a fault is kept until the next call. */
  run(work: () => Promise<void>): Promise<void>;
}

/** An action that the reader requested, and its progress. */
export function useAction(): Action {
  const [isBusy, setBusy] = useState(false);
  const [fault, setFault] = useState<Fault | null>(null);
  const run = async (work: () => Promise<void>) => {
    if (isBusy) return;
    setBusy(true);
    setFault(null);
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      setFault(error);
    } finally {
      setBusy(false);
    }
  };
  return { isBusy, fault, run };
}
