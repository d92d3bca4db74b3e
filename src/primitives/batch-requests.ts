interface Waiting<Request, Response> {
  request: Request;
  timer: ReturnType<typeof setTimeout>;
  resolve(response: Response): void;
  reject(error: unknown): void;
}

/**
 * Batches requests that come at the same moment, as DataLoader does. One batch is sent at a time. Requests that come
 * in the meantime form the next batch.
 *
 * @param callers number of callers, each of which waits for one request at a time. When all of them are waiting,
 *   the batch is sent at once.
 * @param send sends a batch, and returns the responses in the same order. If it throws, each request of the batch does.
 */
export function batchRequests<Request, Response>(
  callers: number,
  send: (batch: Request[]) => Promise<Response[]>,
) {
  let waiting: Waiting<Request, Response>[] = [];
  let isSending = false;
  let isDue = false;

  async function flush(): Promise<void> {
    if (isSending || waiting.length === 0 || !(isDue || waiting.length >= callers)) return;
    const batch = waiting;
    [waiting, isSending, isDue] = [[], true, false];
    for (const { timer } of batch) clearTimeout(timer);
    try {
      const responses = await send(batch.map(({ request }) => request));
      for (const [i, { resolve }] of batch.entries()) resolve(responses[i] as Response);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
    isSending = false;
    flush();
  }

  return {
    /** Adds a request to the next batch. @param withinMs how long the request may wait for others. */
    add(request: Request, withinMs: number): Promise<Response> {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          isDue = true;
          flush();
        }, withinMs);
        waiting.push({ request, timer, resolve, reject });
        flush();
      });
    },
    /** Removes a caller that makes no more requests. */
    unregister(): void {
      callers--;
      flush();
    },
  };
}
