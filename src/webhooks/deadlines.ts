/** Runs work that is aborted when it takes too long. */
export type WithinDeadline = <T>(work: (signal: AbortSignal) => Promise<T>) => Promise<T>;

/**
 * Aborts work that takes longer than `ms`, with a single timer for everything in progress. A timer
 * per post would outlive its post, and an invocation may have only 10,000 of them: a fast receiver
 * takes that many posts before the first timer fires.
 */
export function createDeadlines(ms: number): WithinDeadline {
  /** When each deadline expires, by the monotonic clock; earliest first. */
  const endings = new Map<AbortController, number>();
  let isWaiting = false;
  const wait = () => {
    const [earliest] = endings.values();
    isWaiting = earliest !== undefined;
    if (earliest !== undefined) setTimeout(expire, Math.max(0, earliest - performance.now()));
  };
  const expire = () => {
    const now = performance.now();
    for (const [controller, endsAt] of endings) {
      if (endsAt > now) break;
      endings.delete(controller);
      controller.abort();
    }
    wait();
  };
  return async (work) => {
    const controller = new AbortController();
    endings.set(controller, performance.now() + ms);
    if (!isWaiting) wait();
    try {
      return await work(controller.signal);
    } finally {
      endings.delete(controller);
    }
  };
}
