export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Starts a budget of time. The returned function tells whether any of it is left. */
export function timeBudget(ms: number): () => boolean {
  const startedAt = performance.now();
  return () => performance.now() - startedAt < ms;
}

/**
 * Does work whose `signal` is aborted after `ms`. The timer is cleared when the work ends, unlike the timer of
 * `AbortSignal.timeout`, because an invocation may have at most 10,000 timers.
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

/**
 * Returns the result of work that ends within `ms`, or else the result of `late`, which may throw. The work goes on.
 */
export async function withTimeout<T, L>(
  ms: number,
  work: Promise<T>,
  late: () => L,
): Promise<T | L> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  try {
    return await Promise.race([work, promise.then(late)]);
  } finally {
    clearTimeout(timer);
  }
}
