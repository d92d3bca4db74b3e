import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { withConsumers } from "./delivering.ts";
import type { Samples } from "./figures.ts";
import * as setting from "./setting.ts";
import { quantile } from "./statistics.ts";

const { openWorkspace, readUntil, recordLeads, sleep } = setting;

/** How long an endpoint takes to respond. */
const ANSWER_MS = 50;
/** How long a burst may take. */
const SETTLED_MS = 180_000;

const EXTENTS = {
  full: { rounds: 3, size: { workspaces: 5, subscriptions: 20, events: 50 }, quietMs: 4_000 },
  quick: { rounds: 1, size: { workspaces: 5, subscriptions: 20, events: 50 }, quietMs: 4_000 },
  smoke: { rounds: 1, size: { workspaces: 1, subscriptions: 2, events: 2 }, quietMs: 50 },
};

/**
 * Measures how much a burst of deliveries slows the reads of another workspace. The local queues run one batch after
 * another, so the bench hands the batches to as many consumers as a deployment has, each of which is free once its
 * handler has returned. Rounds alternate.
 */
export async function measureBurst(extent: setting.Extent): Promise<Samples> {
  const { rounds, size, quietMs } = EXTENTS[extent];
  const runtime = await setting.startOrShare("worker", extent);
  const receiver = await startReceiver(() => sleep(ANSWER_MS).then(() => 204));
  const urls = Array.from({ length: size.subscriptions }, (_, i) => `${receiver.url}/${i}`);
  const workspaces: { workspaceId: string }[] = [];
  for (let i = 0; i < size.workspaces; i++) workspaces.push(await openWorkspace(runtime, urls));
  const reader = await openWorkspace(runtime);
  await recordLeads(runtime, reader.workspaceId, 25);

  const pending = runtime.env.DB.prepare(
    "SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1",
  );
  const isSettled = async () => (await pending.all()).results.length === 0;
  const burst = () =>
    withConsumers(runtime, async () => {
      const record = (of: string) => recordLeads(runtime, of, size.events);
      await Promise.all(workspaces.map(({ workspaceId }) => record(workspaceId)));
      let isOver = false;
      const settled = until(isSettled, SETTLED_MS).finally(() => {
        isOver = true;
      });
      const times = await readUntil(runtime, reader.apiKey, () => isOver);
      await settled;
      return times;
    });
  // The concurrency of subscriptions grows first.
  for (let i = 0; i < 2; i++) await burst();
  const ratios: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const end = performance.now() + quietMs;
    const quiet = await readUntil(runtime, reader.apiKey, () => performance.now() > end);
    ratios.push(quantile(await burst(), 0.99) / quantile(quiet, 0.99));
  }
  await receiver.close();
  await runtime.stop();
  return { burst_read_p99_ratio: ratios };
}
