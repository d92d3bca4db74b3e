interface Queued<Item, Result> {
  item: Item;
  timer: ReturnType<typeof setTimeout>;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

/**
 * Batches items that are added at the same moment, as DataLoader does. One batch is sent at a time. Items that are added
 * in the meantime form the next batch.
 *
 * @param callers number of callers, each of which waits for one result at a time. When all of them are waiting,
 *   the batch is sent at once.
 * @param send sends a batch, and returns the results in the same order. If it throws, `add` throws for each of its items.
 */
export function batchRequests<Item, Result>(
  callers: number,
  send: (batch: Item[]) => Promise<Result[]>,
) {
  let queued: Queued<Item, Result>[] = [];
  let isSending = false;
  let isDue = false;

  async function flush(): Promise<void> {
    if (isSending || queued.length === 0 || !(isDue || queued.length >= callers)) return;
    const batch = queued;
    [queued, isSending, isDue] = [[], true, false];
    for (const { timer } of batch) clearTimeout(timer);
    try {
      const results = await send(batch.map(({ item }) => item));
      for (const [i, { resolve }] of batch.entries()) resolve(results[i] as Result);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
    isSending = false;
    flush();
  }

  return {
    /** Adds an item to the next batch. @param withinMs how long it may wait for others. */
    add(item: Item, withinMs: number): Promise<Result> {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          isDue = true;
          flush();
        }, withinMs);
        queued.push({ item, timer, resolve, reject });
        flush();
      });
    },
    /** Removes a caller that adds no more items. */
    unregister(): void {
      callers--;
      flush();
    },
  };
}
