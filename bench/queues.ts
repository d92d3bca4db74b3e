/**
 * The queues and the clock of the metered Worker, as a bench controls them: what is held is consumed by as
 * many consumers at once as a deployment has, which the local queues do not do, and days pass at once. The
 * database and the receivers are real.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { Connections } from "../test/support/connections.ts";

/** A message that a queue would have carried; `dueAt` by the Worker's clock, in Unix milliseconds. */
interface Message {
  queue: string;
  body: unknown;
  dueAt: number;
}

/** The calls of the Worker that the bench makes. */
export interface Work {
  consume(batch: MessageBatch): Promise<void>;
  scheduled(): Promise<void>;
  /** Whether no delivery is pending. */
  isDone(): Promise<boolean>;
}

const BATCH_MAX = 100;
const LIMIT_MS = 14 * 86_400_000;
const MINUTE_MS = 60_000;
const TICK_MS = 50;
/** How soon an idle consumer looks for messages again: Cloudflare hands them over at once. */
const IDLE_MS = 5;

const realNow = Date.now;
let offsetMs = 0;
Date.now = () => realNow() + offsetMs;

const invocation = new AsyncLocalStorage<Connections>();
const { fetch: post } = globalThis;
globalThis.fetch = (...request: Parameters<typeof post>) => connected(() => post(...request));

/** Makes a request of the invocation. Calls that are not documented to take a connection, as D1's, do not. */
function connected<T>(send: () => Promise<T>): Promise<T> {
  return invocation.getStore()?.use(send) ?? send();
}

/** Runs an invocation with as many connections as Cloudflare gives it. */
export function withConnections<T>(run: () => T): T {
  return invocation.run(new Connections(), run);
}

/** Moves the Worker's clock, in milliseconds from the true time. */
export function setClock(ms: number): void {
  offsetMs = ms;
}

let isHeld = false;
let messages: Message[] = [];

/** Holds messages from now on, or lets them go to their queues again. */
export function hold(on: boolean): void {
  isHeld = on;
  messages = [];
}

/** The queue, or what is held in its place; sending takes a connection. */
export function holdQueue(name: string, queue: Queue): Queue {
  return {
    sendBatch: (bodies: MessageSendRequest[]) =>
      connected(async () => {
        if (!isHeld) return queue.sendBatch(bodies);
        for (const { body, delaySeconds } of bodies) keep(name, body, delaySeconds);
      }),
  } as unknown as Queue;
}

function keep(queue: string, body: unknown, delaySeconds = 0): void {
  messages.push({ queue, body, dueAt: Date.now() + delaySeconds * 1000 });
}

/**
 * Runs `consumers` at once until nothing is pending; each takes its share of the due messages, as if the queue
 * had distributed batches to all of them. With `leap`, time advances to the next message if none is due, and
 * the scheduled job then runs: in between it would find nothing to do.
 *
 * @throws Error if it is not done within two weeks of the Worker's time.
 */
export async function drain(work: Work, consumers: number, leap: boolean): Promise<void> {
  const deadline = Date.now() + LIMIT_MS;
  let isDone = false;
  const run = async () => {
    while (!isDone) {
      if (Date.now() > deadline) throw new Error("deliveries are still pending after two weeks");
      if (await consumeDue(work, Math.ceil(BATCH_MAX / consumers))) continue;
      isDone = await work.isDone();
      if (isDone) return;
      if (leap) await leapOn(work);
      else await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
  };
  await Promise.all(Array.from({ length: consumers }, run));
}

/** Runs `consumers` at once until messages are no longer held, as a queue with that `max_concurrency` does. */
export async function consumeWhileHeld(consume: Work["consume"], consumers: number): Promise<void> {
  const run = async () => {
    while (isHeld)
      if (!(await consumeDue({ consume }, BATCH_MAX)))
        await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  };
  await Promise.all(Array.from({ length: consumers }, run));
}

/** @returns whether a message was due. */
async function consumeDue({ consume }: Pick<Work, "consume">, limit: number): Promise<boolean> {
  const queue = messages.find(isDue)?.queue;
  if (queue === undefined) return false;
  const due = messages.filter((one) => one.queue === queue && isDue(one)).slice(0, limit);
  messages = messages.filter((one) => !due.includes(one));
  const retry = (body: unknown, options?: QueueRetryOptions) =>
    keep(queue, body, options?.delaySeconds);
  await consume({
    queue,
    messages: due.map(({ body }) => ({
      id: crypto.randomUUID(),
      timestamp: new Date(Date.now()),
      body,
      attempts: 1,
      ack: () => {},
      retry: (options?: QueueRetryOptions) => retry(body, options),
    })),
    ackAll: () => {},
    retryAll: (options?: QueueRetryOptions) => {
      for (const { body } of due) retry(body, options);
    },
  } as unknown as MessageBatch);
  return true;
}

function isDue({ dueAt }: Message): boolean {
  return dueAt <= Date.now();
}

async function leapOn({ scheduled }: Work): Promise<void> {
  // With no messages left, the scheduled job is the next thing to happen.
  const next = Math.min(...messages.map(({ dueAt }) => dueAt));
  offsetMs += Math.max(0, messages.length > 0 ? next - Date.now() : MINUTE_MS);
  await scheduled();
}
