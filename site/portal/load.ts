import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Fault } from "./api.ts";

/** How often what is on the screen is read anew. */
const REFRESH_MS = 15_000;
/** The wait after the server could not be reached. */
const OFFLINE_MS = 5_000;
/** After a change, its effects are looked for sooner. */
const SOON_MS = [1_000, 3_000, 6_000];

export interface Loaded<T> {
  data: T | null;
  /** Why the last try failed; the data is then that of an earlier one. */
  fault: Fault | null;
  /** Whether the data on the screen is that of another key: new data is on its way. */
  isStale: boolean;
  /** Reads anew now, and some times more in the next seconds. */
  reload(): void;
}

/**
 * Keeps on the screen what `load` reads: it is read anew at a calm interval while the page can be seen,
 * when the page comes back into sight, and when the network does.
 *
 * @param key what is read: another key reads at once.
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
  /** Does `work` unless something is under way; a fault stays until the next one. */
  run(work: () => Promise<void>): Promise<void>;
}

/** One thing that the reader asked for, and how it is going. */
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
