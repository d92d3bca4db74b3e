import autocannon from "autocannon";
import { type Runtime, type RuntimeOptions, startRuntime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { latencies, openWorkspace, recordLeads } from "./isolation.ts";
import { recordAutomations } from "./reads.ts";
import { median, quantile } from "./statistics.ts";

const CONNECTIONS = 10;
const SINGLES = 100;
const HEALTHY = 9;
/** When the first post to a receiver that hangs has timed out. */
const HANG_MS = 12_000;

/** What one Worker does, by the medians of its rounds. */
interface Measured {
  readsPerSecond: number;
  readP50Ms: number;
  readP99Ms: number;
  deliveriesPerSecond: number;
  receiptP50Ms: number;
  receiptP99Ms: number;
}

/** How much is measured. */
interface Extent {
  rounds: number;
  /** How long each round reads. */
  seconds: number;
  /** How many events one receiver gets as fast as they can be recorded and delivered. */
  eventsARound: number;
  /** How many each of nine receivers gets beside one that hangs. */
  isolatedEvents: number;
}

/**
 * The shipped Worker and the one of `by-hand.ts` in the same runtime, over the same reads, events and
 * receivers. Rounds alternate.
 */
export async function measureByHand(
  bundles: { shipped: string; byHand: string },
  options: RuntimeOptions,
  { rounds, seconds, eventsARound, isolatedEvents }: Extent,
) {
  const start = async (bundle: string) => {
    const runtime = await startRuntime({ ...options, bundle, withoutAssets: true });
    return { runtime, found: [] as Measured[] };
  };
  const [shipped, byHand] = [await start(bundles.shipped), await start(bundles.byHand)];
  for (const { runtime } of [shipped, byHand]) await measureOne(runtime, 1, eventsARound);
  for (let i = 0; i < rounds; i++)
    for (const { runtime, found } of i % 2 === 0 ? [shipped, byHand] : [byHand, shipped])
      found.push(await measureOne(runtime, seconds, eventsARound));
  const isolation = {
    shipped: await measureBesideHanging(shipped.runtime, isolatedEvents),
    byHand: await measureBesideHanging(byHand.runtime, isolatedEvents),
  };
  for (const { runtime } of [shipped, byHand]) await runtime.stop();
  // Of neighbours in time: the machine is shared.
  const ratio = (name: keyof Measured) =>
    median(shipped.found.map((one, i) => one[name] / (byHand.found[i]?.[name] ?? Number.NaN)));
  return {
    figures: {
      by_hand_deliveries_ratio: ratio("deliveriesPerSecond"),
      by_hand_reads_ratio: ratio("readsPerSecond"),
      by_hand_receipt_p99_ratio: ratio("receiptP99Ms"),
      by_hand_isolation_ms: isolation.byHand,
    },
    tables: [
      {
        title: "The shipped Worker, and one written by hand from the platform's guides",
        rows: [
          toRow("shipped", shipped.found, isolation.shipped),
          toRow("by hand", byHand.found, isolation.byHand),
        ],
      },
    ],
  };
}

function toRow(worker: string, found: Measured[], isolationMs: number) {
  const of = (name: keyof Measured) => median(found.map((one) => one[name]));
  return {
    worker,
    "reads / s": of("readsPerSecond"),
    "read p50, ms": of("readP50Ms"),
    "p99, ms": of("readP99Ms"),
    "events recorded and delivered / s": of("deliveriesPerSecond"),
    "receipt p50, ms": of("receiptP50Ms"),
    "receipt p99, ms": of("receiptP99Ms"),
    "nine beside one that hangs, p99, ms": isolationMs,
  };
}

async function measureOne(runtime: Runtime, seconds: number, events: number): Promise<Measured> {
  const receiver = await startReceiver();
  const { workspaceId, apiKey } = await openWorkspace(runtime, [receiver.url]);
  await recordAutomations(runtime, workspaceId, 25);
  const { requests, latency, non2xx } = await autocannon({
    url: new URL("/v1/automations", runtime.url).href,
    connections: CONNECTIONS,
    duration: seconds,
    headers: { Authorization: `Bearer ${apiKey}` },
  });
  if (non2xx > 0) throw new Error(`${non2xx} reads failed`);
  const deliver = async (count: number, size: number, pauseMs: number) => {
    receiver.posts.length = 0;
    const startedAt = performance.now();
    for (let sent = 0; sent < count; sent += size) {
      await recordLeads(runtime, workspaceId, size);
      if (pauseMs > 0) await sleep(pauseMs);
    }
    await until(() => receiver.posts.length >= count, 120_000);
    return performance.now() - startedAt;
  };
  // Its concurrent posts are earned.
  await deliver(100, 100, 0);
  const tookMs = await deliver(events, 100, 0);
  await deliver(SINGLES, 1, 20);
  const waits = latencies([receiver]);
  await receiver.close();
  return {
    readsPerSecond: requests.average,
    readP50Ms: latency.p50,
    readP99Ms: latency.p99,
    deliveriesPerSecond: (events / tookMs) * 1000,
    receiptP50Ms: quantile(waits, 0.5),
    receiptP99Ms: quantile(waits, 0.99),
  };
}

/** p99 from record to receipt of nine healthy receivers beside one that hangs on every post. */
async function measureBesideHanging(runtime: Runtime, events: number): Promise<number> {
  const receivers = await Promise.all(Array.from({ length: HEALTHY }, () => startReceiver()));
  const hanging = await startReceiver(() => new Promise<number>(() => {}));
  const urls = [...receivers, hanging].map(({ url }) => url);
  const { workspaceId } = await openWorkspace(runtime, urls);
  await recordLeads(runtime, workspaceId, 1);
  await sleep(HANG_MS);
  for (const { posts } of receivers) posts.length = 0;
  for (let i = 0; i < events; i++) {
    await recordLeads(runtime, workspaceId, 1);
    await sleep(40);
  }
  await until(() => receivers.every(({ posts }) => posts.length >= events), 180_000);
  const p99Ms = quantile(latencies(receivers), 0.99);
  await Promise.all([...receivers, hanging].map((each) => each.close()));
  return p99Ms;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
