import type { Runtime } from "../scripts/shared/runtime.ts";
import { type Answer, type Receiver, startReceiver } from "../test/node/support/receiver.ts";
import { HeldQueues, readMeters, resetMeters } from "./held.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";

const HOUR_MS = 3_600_000;

/** What delivering writes to and asks of the database, per event unless stated otherwise. */
export interface Writes {
  /** Rows that D1 counts as written when one lead is recorded that is owed to one subscriber. */
  record: number;
  /** Rows written after that, for one event that its subscriber gets at once, alone. */
  single: number;
  /** The same for a hundred events together. */
  hundred: number;
  /** The subscriber answers 429 to every second request. */
  half429: number;
  half429Posts: number;
  /** The subscriber answers 500 until its subscription is disabled. */
  dead: number;
  deadPosts: number;
  deadHours: number;
  /** Round trips to D1 for a hundred more deliveries, after a hundred. */
  tripsPerFurtherHundred: number;
}

interface World {
  queues: HeldQueues;
  receiver: Receiver;
  workspaceId: string;
  apiKey: string;
}

/**
 * Counts what the shipped queue consumer writes, by D1's own count, from the first attempt to the
 * settlement. Days pass at once: the Worker's clock is set to when its next message is due.
 *
 * @param runtime runs the bundle of `bench/worker.ts`.
 * @param events number of events in each measurement.
 */
export async function measureWrites(runtime: Runtime, events: number): Promise<Writes> {
  const healthy = await inWorld(
    runtime,
    () => 204,
    async (world) => {
      const singles = await countSingles(world, events);
      const hundred = await deliver(world, 100);
      const more = await deliver(world, 1_100);
      return {
        ...singles,
        hundred: hundred.rowsWritten / 100,
        tripsPerFurtherHundred: (more.d1RoundTrips - hundred.d1RoundTrips) / 10,
      };
    },
  );
  let requests = 0;
  const half429 = await inWorld(
    runtime,
    () => (++requests % 2 === 0 ? 429 : 204),
    (world) => settleAll(world, events),
  );
  const dead = await inWorld(
    runtime,
    () => 500,
    async (world) => {
      const found = await settleAll(world, events);
      if (!(await isDisabled(world))) throw new Error("the dead subscription was not disabled");
      return found;
    },
  );
  return {
    ...healthy,
    half429: half429.rowsWritten / events,
    half429Posts: half429.posts / events,
    dead: dead.rowsWritten / events,
    deadPosts: dead.posts / events,
    deadHours: dead.hours,
  };
}

async function inWorld<T>(
  runtime: Runtime,
  answer: () => Answer,
  work: (world: World) => Promise<T>,
): Promise<T> {
  const queues = await HeldQueues.take(runtime);
  const receiver = await startReceiver(answer);
  const workspace = await openWorkspace(runtime, [receiver.url]);
  try {
    return await work({ queues, receiver, ...workspace });
  } finally {
    await queues.release();
    await receiver.close();
  }
}

async function countSingles(world: World, events: number) {
  const total = { record: 0, single: 0 };
  for (let i = 0; i < events; i++) {
    const { recorded, rowsWritten } = await deliver(world, 1);
    total.record += recorded;
    total.single += rowsWritten;
  }
  return { record: total.record / events, single: total.single / events };
}

/** Records `count` leads, and meters what happens until a healthy receiver has them all. */
async function deliver({ queues, receiver, workspaceId }: World, count: number) {
  const { runtime } = queues;
  receiver.posts.length = 0;
  await resetMeters(runtime);
  await recordAll(runtime, workspaceId, count);
  const recorded = (await readMeters(runtime)).rowsWritten;
  await resetMeters(runtime);
  await queues.settle(() => receiver.posts.length >= count);
  return { recorded, ...(await readMeters(runtime)) };
}

/** The same if the number of posts is unknown: until nothing is pending. */
async function settleAll({ queues, receiver, workspaceId }: World, events: number) {
  const { runtime } = queues;
  await recordAll(runtime, workspaceId, events);
  await resetMeters(runtime);
  const startedAt = queues.now();
  const pending = async () => (await runtime.env.PLATFORM.ledger({ workspaceId })).pending;
  await queues.settle(async () => (await pending()) === 0, 14 * 24 * HOUR_MS);
  const { rowsWritten } = await readMeters(runtime);
  const hours = (queues.now() - startedAt) / HOUR_MS;
  return { rowsWritten, posts: receiver.posts.length, hours };
}

async function recordAll(runtime: Runtime, workspaceId: string, count: number): Promise<void> {
  for (let left = count; left > 0; left -= 100)
    await recordLeads(runtime, workspaceId, Math.min(left, 100));
}

async function isDisabled({ queues, apiKey }: World): Promise<boolean> {
  const answer = await fetch(new URL("/v1/webhooks", queues.runtime.url), {
    headers: { Authorization: `Bearer ${apiKey}` },
  });
  const { data } = (await answer.json()) as { data: { disabled_at: string | null }[] };
  return data[0] !== undefined && data[0].disabled_at !== null;
}
