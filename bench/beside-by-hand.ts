import type { Runtime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { HANG, HANG_MS, PAUSE, recordSingly, startTen, withConsumers } from "./delivering.ts";
import type { Samples } from "./figures.ts";
import * as setting from "./setting.ts";
import { quantile } from "./statistics.ts";

const { openWorkspace, recordLeads } = setting;

const EXTENTS = {
  full: { rounds: 5, load: { duration: 3 }, events: 3_000, singles: 100, hangMs: HANG_MS },
  quick: { rounds: 1, load: { duration: 1 }, events: 1_000, singles: 25, hangMs: HANG_MS },
  smoke: { rounds: 1, load: setting.SMOKE_LOAD, events: 20, singles: 3, hangMs: 0 },
};

/**
 * Measures the shipped Worker and the one of `by-hand.ts` in the same runtime, with the same reads, events and
 * receivers. Rounds alternate: a ratio is that of neighbours in time.
 */
export async function measureByHand(extent: setting.Extent): Promise<Samples> {
  const { rounds, load, events, singles, hangMs } = EXTENTS[extent];
  const open = async (bundle: setting.Bundle) => {
    const runtime = await setting.startOrShare(bundle, extent);
    const receiver = await startReceiver();
    const workspace = await openWorkspace(runtime, [receiver.url]);
    await setting.recordAutomations(runtime, workspace.workspaceId);
    const world = { runtime, receiver, ...workspace };
    const round = async () => ({
      readsPerSecond: await setting.readsPerSecond(runtime, workspace.apiKey, load),
      eventsPerSecond: (events / (await deliver(world, events))) * 1000,
      receipts: await recordSingly(runtime, workspace.workspaceId, [receiver], singles),
    });
    // The concurrency of its subscriptions grows first.
    await deliver(world, 100);
    if (extent !== "smoke") await round();
    return { ...world, round };
  };
  const [ours, byHand] = [await open("shipped"), await open("by-hand")];
  const ratios = { reads: [] as number[], deliveries: [] as number[], receipts: [] as number[] };
  for (let i = 0; i < rounds; i++) {
    const first = await (i % 2 === 0 ? ours : byHand).round();
    const second = await (i % 2 === 0 ? byHand : ours).round();
    const [a, b] = i % 2 === 0 ? [first, second] : [second, first];
    ratios.reads.push(a.readsPerSecond / b.readsPerSecond);
    ratios.deliveries.push(a.eventsPerSecond / b.eventsPerSecond);
    ratios.receipts.push(quantile(a.receipts, 0.99) / quantile(b.receipts, 0.99));
  }
  const isolationMs = await withConsumers(byHand.runtime, () =>
    besideHanging(byHand.runtime, Math.min(50, singles), hangMs),
  );
  for (const { runtime, receiver } of [ours, byHand]) {
    await runtime.stop();
    await receiver.close();
  }
  return {
    by_hand_deliveries_ratio: ratios.deliveries,
    by_hand_reads_ratio: ratios.reads,
    by_hand_receipt_p99_ratio: ratios.receipts,
    by_hand_isolation_ms: [isolationMs],
  };
}

type World = { runtime: Runtime; workspaceId: string } & {
  receiver: Awaited<ReturnType<typeof startReceiver>>;
};

/** Records and delivers as fast as possible. @returns how long it took, in milliseconds. */
async function deliver({ runtime, receiver, workspaceId }: World, events: number): Promise<number> {
  receiver.posts.length = 0;
  const startedAt = Date.now();
  await recordLeads(runtime, workspaceId, events);
  return (await setting.timeOfPost(receiver, events)) - startedAt;
}

async function besideHanging(runtime: Runtime, events: number, hangMs: number): Promise<number> {
  const ten = await startTen(hangMs > 0 ? HANG : PAUSE);
  const { workspaceId } = await openWorkspace(runtime, ten.urls);
  await recordLeads(runtime, workspaceId, 1);
  await setting.sleep(hangMs);
  const p99Ms = quantile(await recordSingly(runtime, workspaceId, ten.healthy, events), 0.99);
  await ten.close();
  return p99Ms;
}
