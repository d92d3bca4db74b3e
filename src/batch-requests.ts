interface Asked<Request, Answer> {
  request: Request;
  timer: ReturnType<typeof setTimeout>;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

/**
 * Merges requests that come within the same moment, as DataLoader does. One batch is under way at a
 * time; what comes meanwhile goes together in the next.
 *
 * @param members how many may ask, each for one thing at a time. Once all have, nothing is waited for.
 * @param send answers a batch, in its order; if it throws, so does each request of the batch.
 */
export function batchRequests<Request, Answer>(
  members: number,
  send: (batch: Request[]) => Promise<Answer[]>,
) {
  let waiting: Asked<Request, Answer>[] = [];
  let isUnderWay = false;
  let isDue = false;

  async function depart(): Promise<void> {
    if (isUnderWay || waiting.length === 0 || !(isDue || waiting.length >= members)) return;
    const batch = waiting;
    [waiting, isUnderWay, isDue] = [[], true, false];
    for (const { timer } of batch) clearTimeout(timer);
    try {
      const answers = await send(batch.map(({ request }) => request));
      for (const [i, { resolve }] of batch.entries()) resolve(answers[i] as Answer);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
    isUnderWay = false;
    depart();
  }

  return {
    /** @param withinMs how long the request may wait for others. */
    ask(request: Request, withinMs: number): Promise<Answer> {
      return new Promise((resolve, reject) => {
        const timer = setTimeout(() => {
          isDue = true;
          depart();
        }, withinMs);
        waiting.push({ request, timer, resolve, reject });
        depart();
      });
    },
    /** A member asks for nothing any more. */
    leave(): void {
      members--;
      depart();
    },
  };
}
