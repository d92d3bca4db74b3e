import { join } from "node:path";
import { ROOT } from "../scripts/shared/checkout.ts";
import { readConfig } from "../scripts/shared/databases.ts";
import type { Runtime } from "../scripts/shared/runtime.ts";
import { type Answer, type Receiver, startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Samples } from "./figures.ts";
import * as setting from "./setting.ts";
import { median, quantile } from "./statistics.ts";

const { call, latencies, openWorkspace, recordLeads, sleep } = setting;

const HEALTHY = 9;
/** An endpoint that never responds. */
export const HANG = () => new Promise<number>(() => {});
/** An endpoint that responds late, which suffices to see that a bench runs. */
export const PAUSE = () => setting.sleep(1_000).then(() => 204);
/** The time after which the first request to an endpoint that hangs has timed out. */
export const HANG_MS = 12_000;
const EXTENTS = {
  full: { rounds: 5, events: 3_000, singles: 100, hangMs: HANG_MS },
  quick: { rounds: 1, events: 1_000, singles: 25, hangMs: HANG_MS },
  smoke: { rounds: 1, events: 20, singles: 3, hangMs: 0 },
};

/** Measures events per second to a fast receiver, the time to a receipt, and how much one that hangs slows others. */
export async function measureDelivering(extent: setting.Extent): Promise<Samples> {
  const { rounds, events, singles, hangMs } = EXTENTS[extent];
  const runtime = await setting.startOrShare("worker", extent);
  const receiver = await startReceiver();
  const { workspaceId } = await openWorkspace(runtime, [receiver.url]);
  const perSecond = async (work: () => Promise<unknown>, before = async () => {}) => {
    receiver.posts.length = 0;
    await before();
    const early = receiver.posts.length;
    const startedAt = Date.now();
    await work();
    const ms = (await setting.timeOfPost(receiver, events)) - startedAt;
    return ((events - early) / ms) * 1000;
  };
  const post = `/bench/post?${new URLSearchParams({ url: receiver.url, count: String(events) })}`;
  const [delivered, ratios] = [[] as number[], [] as number[]];
  for (let i = 0; i < rounds; i++) {
    // Recording is measured separately, because its calls block this process, and so the receiver.
    const deliveries = await perSecond(
      async () => {},
      () => recordLeads(runtime, workspaceId, events),
    );
    const posts = await perSecond(() => call(runtime, post));
    delivered.push(deliveries);
    ratios.push(deliveries / posts);
  }
  const receipts = await recordSingly(runtime, workspaceId, [receiver], singles);
  await receiver.close();
  const isolate = () => measureIsolation(runtime, rounds, singles, hangMs);
  const isolation = await withConsumers(runtime, isolate);
  const waiting = await withConsumers(runtime, isolate, "waiting");
  await runtime.stop();
  return {
    deliveries_per_second: delivered,
    delivering_ratio: ratios,
    receipt_p50_ms: [quantile(receipts, 0.5)],
    receipt_p99_ms: [quantile(receipts, 0.99)],
    ...isolation,
    isolation_waiting_ratio: waiting.isolation_ratio,
  };
}

/**
 * Does the work while as many consumers as a deployment has take messages from its queues. The local queue has one
 * consumer.
 *
 * @param after what a consumer does after its handler has returned while dispatches go on in the background: it takes
 *   the next batch, as in a deployment, or waits for them.
 */
export async function withConsumers<T>(
  runtime: Runtime,
  work: () => Promise<T>,
  after: "free" | "waiting" = "free",
): Promise<T> {
  const { queues } = await readConfig(join(ROOT, "wrangler.toml"));
  const deliveries = queues.consumers?.find(({ queue }) => queue === "webhook-deliveries");
  await call(runtime, "/bench/hold?on=true");
  const consumers = deliveries?.max_concurrency;
  const consuming = call(runtime, `/bench/consume?consumers=${consumers}&after=${after}`);
  try {
    return await work();
  } finally {
    await call(runtime, "/bench/hold?on=false");
    await consuming;
  }
}

/** Records leads one at a time. @returns the milliseconds from each record to each receipt. */
export async function recordSingly(
  runtime: Runtime,
  workspaceId: string,
  receivers: Receiver[],
  events: number,
): Promise<number[]> {
  for (const { posts } of receivers) posts.length = 0;
  for (let i = 0; i < events; i++) {
    await recordLeads(runtime, workspaceId, 1);
    await sleep(40);
  }
  await until(() => receivers.every(({ posts }) => posts.length >= events), 180_000);
  return latencies(receivers);
}

/** Nine healthy receivers and a tenth. @param answer what the tenth does. */
export async function startTen(answer?: () => Answer | Promise<Answer>) {
  const healthy = await Promise.all(Array.from({ length: HEALTHY }, () => startReceiver()));
  const tenth = await startReceiver(answer);
  const all = [...healthy, tenth];
  const close = () => Promise.all(all.map((receiver) => receiver.close()));
  return { healthy, urls: all.map(({ url }) => url), close };
}

/** Measures how much a hanging subscription slows nine healthy ones, once it has failed. Rounds alternate. */
async function measureIsolation(runtime: Runtime, rounds: number, events: number, hangMs: number) {
  const [alone, beside] = [await startTen(), await startTen(HANG)];
  const good = await openWorkspace(runtime, alone.urls);
  const bad = await openWorkspace(runtime, beside.urls);
  await recordLeads(runtime, bad.workspaceId, 1);
  await sleep(hangMs);
  await recordSingly(runtime, good.workspaceId, alone.healthy, events);
  const [besideMs, ratios] = [[] as number[], [] as number[]];
  for (let i = 0; i < rounds; i++) {
    const goodMs = await recordSingly(runtime, good.workspaceId, alone.healthy, events);
    const badMs = await recordSingly(runtime, bad.workspaceId, beside.healthy, events);
    besideMs.push(quantile(badMs, 0.99));
    ratios.push(quantile(badMs, 0.99) / quantile(goodMs, 0.99));
  }
  await Promise.all([alone.close(), beside.close()]);
  return { isolation_ratio: ratios, isolation_ms: [median(besideMs)] };
}
