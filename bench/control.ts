/**
 * What the metered Worker lets a bench control: its clock, the messages it sends to its queues, and
 * the batches it consumes, as if days passed and several consumers ran at once.
 */

/** A message that a queue would have carried. */
export interface Held {
  queue: string;
  body: unknown;
  /** Unix milliseconds, by the Worker's clock. */
  dueAt: number;
}

/** Messages returned by a batch, and when they are due again. */
export type Returned = Held[];

const realNow = Date.now;
let offsetMs = 0;
Date.now = () => realNow() + offsetMs;

let held: Held[] | null = null;

/** The queue or, while messages are held, a list in its place. */
export function holdQueue(name: string, queue: Queue): Queue {
  return {
    sendBatch: async (messages: MessageSendRequest[]) => {
      if (held === null) return queue.sendBatch(messages);
      for (const { body, delaySeconds = 0 } of messages) held.push(hold(name, body, delaySeconds));
    },
  } as unknown as Queue;
}

function hold(queue: string, body: unknown, delaySeconds: number): Held {
  return { queue, body, dueAt: Date.now() + delaySeconds * 1000 };
}

/**
 * - `/bench/control/clock?offset=` moves the Worker's clock, in milliseconds from the true time.
 * - `/bench/control/hold?on=` holds messages from now on, or lets them go to their queues again.
 * - `/bench/control/held` hands over what is held.
 * - `/bench/control/consume?queue=` runs the queue consumer on the bodies that are posted, and hands over
 *   what it gave back.
 */
export async function answerControl(
  request: Request,
  consume: (batch: MessageBatch<unknown>) => Promise<void>,
): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  switch (pathname) {
    case "/bench/control/clock":
      offsetMs = Number(searchParams.get("offset"));
      return Response.json(null);
    case "/bench/control/hold":
      held = searchParams.get("on") === "true" ? [] : null;
      return Response.json(null);
    case "/bench/control/held": {
      const messages = held ?? [];
      if (held !== null) held = [];
      return Response.json(messages);
    }
    case "/bench/control/consume": {
      const bodies = (await request.json()) as unknown[];
      return Response.json(await runBatch(String(searchParams.get("queue")), bodies, consume));
    }
    default:
      return new Response(null, { status: 404 });
  }
}

async function runBatch(
  queue: string,
  bodies: unknown[],
  consume: (batch: MessageBatch<unknown>) => Promise<void>,
): Promise<Returned> {
  const returned: Returned = [];
  const giveBack = (body: unknown, { delaySeconds = 0 }: QueueRetryOptions = {}) =>
    returned.push(hold(queue, body, delaySeconds));
  await consume({
    queue,
    messages: bodies.map((body) => ({
      id: crypto.randomUUID(),
      timestamp: new Date(Date.now()),
      body,
      attempts: 1,
      ack: () => {},
      retry: (options?: QueueRetryOptions) => giveBack(body, options),
    })),
    ackAll: () => {},
    retryAll: (options?: QueueRetryOptions) => {
      for (const body of bodies) giveBack(body, options);
    },
  } as unknown as MessageBatch<unknown>);
  return returned;
}
