export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Starts a budget of time; the function tells whether any of it is left. */
export function timeBudget(ms: number): () => boolean {
  const startedAt = performance.now();
  return () => performance.now() - startedAt < ms;
}

/**
 * The result of work whose `signal` is aborted after `ms`. The timer ends with the work, as that of
 * `AbortSignal.timeout` does not: an invocation may have 10,000 of them.
 */
export async function abortAfter<T>(
  ms: number,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), ms);
  try {
    return await work(controller.signal);
  } finally {
    clearTimeout(timer);
  }
}

/** The result of work that ends within `ms`, else that of `late`, which may throw. The work goes on. */
export function withTimeout<T, L>(ms: number, work: Promise<T>, late: () => L): Promise<T | L> {
  return abortAfter(ms, (signal) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => resolve());
    return Promise.race([work, promise.then(late)]);
  });
}
