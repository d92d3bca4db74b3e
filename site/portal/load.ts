import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Fault } from "./api.ts";

/** How often data on the screen is reloaded. */
const REFRESH_MS = 15_000;
/** The wait after the server was unreachable. */
const OFFLINE_MS = 5_000;
/** After a change, data is reloaded sooner. */
const SOON_MS = [1_000, 3_000, 6_000];

export interface Loaded<T> {
  data: T | null;
  /** Why the last try failed; the data is then from an earlier one. */
  fault: Fault | null;
  /** Whether the data on the screen belongs to another key: new data is on its way. */
  isStale: boolean;
  /** Reloads now, and a few times in the next seconds. */
  reload(): void;
}

/**
 * Keeps the result of `load` on the screen up to date: it is reloaded at a slow interval while the
 * page is visible, when the page becomes visible again, and when the network returns.
 *
 * @param key what is loaded: another key loads immediately.
 */
export function useLoad<T>(load: () => Promise<T>, key = "", refreshMs = REFRESH_MS): Loaded<T> {
  const [shown, setShown] = useState<{ key: string; data: T | null; fault: Fault | null }>({
    key,
    data: null,
    fault: null,
  });
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
        setShown({ key, data, fault: null });
        wait(soon.shift() ?? refreshMs);
      } catch (error) {
        if (turn !== latest) return;
        if (!(error instanceof Fault)) throw error;
        setShown(({ data }) => ({ key, data, fault: error }));
        if (error.status === null) wait(OFFLINE_MS);
        else wait((error.retryAfterSeconds ?? 0) * 1000 || REFRESH_MS);
      }
    };
    const resume = () => document.visibilityState === "visible" && Date.now() >= dueAt && run();
    reload.current = () => {
      soon = [...SOON_MS];
      void run();
    };
    document.addEventListener("visibilitychange", resume);
    addEventListener("online", run);
    void run();
    return () => {
      latest = -1;
      reload.current = () => {};
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", resume);
      removeEventListener("online", run);
    };
  }, [key, refreshMs]);

  return {
    data: shown.data,
    fault: shown.fault,
    isStale: shown.key !== key,
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
