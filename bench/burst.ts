import type { Runtime } from "../scripts/shared/runtime.ts";
import { SETTLE_AFTER_MS } from "../src/webhooks/dispatch/dispatch.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { HeldQueues, readMeters, resetMeters } from "./held.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";
import { quantile } from "./statistics.ts";

const WORKSPACES = 5;
const SUBSCRIPTIONS = 20;
/** How long a subscriber takes to answer. */
const ANSWER_MS = 50;
const QUIET_MS = 4_000;
/** A client reads, waits this long, and reads again. */
const READ_EVERY_MS = 10;

/**
 * The effect of a burst of deliveries on someone else's reads, with this many concurrent consumers.
 */
export interface Burst {
  consumers: number;
  readP50Ms: number;
  readP99Ms: number;
  /** p99 during the burst divided by p99 without one. */
  p99Ratio: number;
  deliveriesPerSecond: number;
  /** Round trips to D1 per second: the share of its only writer that deliveries use. */
  roundTripsPerSecond: number;
}

/**
 * Times `GET /v1/leads` during a burst delivered by each number of concurrent consumers in
 * `consumers`, and without one. The local queues run one batch after another, so the bench
 * distributes the batches itself. Rounds alternate.
 *
 * @param runtime runs the bundle of `bench/worker.ts`.
 */
export async function measureBursts(
  runtime: Runtime,
  consumers: number[],
  { rounds, deliveries }: { rounds: number; deliveries: number },
): Promise<{ quiet: { readP50Ms: number; readP99Ms: number }; bursts: Burst[] }> {
  const receiver = await startReceiver(() => sleep(ANSWER_MS).then(() => 204));
  const urls = Array.from({ length: SUBSCRIPTIONS }, (_, i) => `${receiver.url}/${i}`);
  const workspaces: { workspaceId: string }[] = [];
  for (let i = 0; i < WORKSPACES; i++) workspaces.push(await openWorkspace(runtime, urls));
  const reader = await openWorkspace(runtime, []);
  await recordLeads(runtime, reader.workspaceId, 25);
  const queues = await HeldQueues.take(runtime);
  const events = deliveries / (WORKSPACES * SUBSCRIPTIONS);

  const burst = async (atOnce: number) => {
    receiver.posts.length = 0;
    await Promise.all(workspaces.map((each) => recordLeads(runtime, each.workspaceId, events)));
    await resetMeters(runtime);
    const startedAt = performance.now();
    const reads = readWhile(runtime, reader.apiKey, () => receiver.posts.length < deliveries);
    await queues.drain(atOnce, () => receiver.posts.length >= deliveries);
    const times = await reads;
    const seconds = (performance.now() - startedAt) / 1000;
    const { d1RoundTrips } = await readMeters(runtime);
    // What is settled last is not part of the next round.
    const settledAt = performance.now() + 2 * SETTLE_AFTER_MS;
    await queues.drain(1, () => performance.now() > settledAt);
    return { times, seconds, trips: d1RoundTrips - times.length };
  };
  const quiet = () => {
    const until = performance.now() + QUIET_MS;
    return readWhile(runtime, reader.apiKey, () => performance.now() < until);
  };

  // Subscriptions earn their concurrent posts.
  for (let i = 0; i < 2; i++) await burst(Math.max(...consumers));
  const quietTimes: number[] = [];
  const found = consumers.map((atOnce) => ({
    atOnce,
    times: [] as number[],
    seconds: 0,
    trips: 0,
  }));
  for (let i = 0; i < rounds; i++) {
    quietTimes.push(...(await quiet()));
    for (const total of found) {
      const { times, seconds, trips } = await burst(total.atOnce);
      total.times.push(...times);
      total.seconds += seconds;
      total.trips += trips;
    }
  }
  await queues.release();
  await receiver.close();
  const readP99Ms = quantile(quietTimes, 0.99);
  return {
    quiet: { readP50Ms: quantile(quietTimes, 0.5), readP99Ms },
    bursts: found.map(({ atOnce, times, seconds, trips }) => ({
      consumers: atOnce,
      readP50Ms: quantile(times, 0.5),
      readP99Ms: quantile(times, 0.99),
      p99Ratio: quantile(times, 0.99) / readP99Ms,
      deliveriesPerSecond: (deliveries * rounds) / seconds,
      roundTripsPerSecond: trips / seconds,
    })),
  };
}

/** The duration in milliseconds of sequential reads, for as long as `goesOn` returns true. */
export async function readWhile(runtime: Runtime, apiKey: string, goesOn: () => boolean) {
  const times: number[] = [];
  while (goesOn()) {
    const startedAt = performance.now();
    const answer = await fetch(new URL("/v1/leads", runtime.url), {
      headers: { Authorization: `Bearer ${apiKey}` },
    });
    await answer.arrayBuffer();
    if (answer.status !== 200) throw new Error(`a read was answered ${answer.status}`);
    times.push(performance.now() - startedAt);
    await sleep(READ_EVERY_MS);
  }
  return times;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
