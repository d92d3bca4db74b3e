import type { Runtime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { latencies, openWorkspace, recordLeads } from "./isolation.ts";
import { median, quantile } from "./statistics.ts";

/**
 * Leads per second through the Platform API, by the hundred and one by one, compared with raw
 * inserts.
 */
export async function measureRecording(runtime: Runtime, rounds: number, leadsARound: number) {
  const { workspaceId } = await openWorkspace(runtime, []);
  const perSecond = async (way: "record" | "insert", leads: number, total: number) => {
    const query = new URLSearchParams({
      workspace: workspaceId,
      leads: String(leads),
      calls: String(total / leads),
    });
    const startedAt = performance.now();
    await call(runtime, `/bench/floor/${way}?${query}`);
    return (total / (performance.now() - startedAt)) * 1000;
  };
  const found = {
    hundreds: [] as number[],
    insert: [] as number[],
    single: [] as number[],
    insertSingle: [] as number[],
  };
  for (let i = 0; i < rounds; i++) {
    found.hundreds.push(await perSecond("record", 100, leadsARound));
    found.insert.push(await perSecond("insert", 100, leadsARound));
    found.single.push(await perSecond("record", 1, leadsARound / 10));
    found.insertSingle.push(await perSecond("insert", 1, leadsARound / 10));
  }
  return {
    leadsPerSecond: median(found.hundreds),
    insertsPerSecond: median(found.insert),
    singleLeadsPerSecond: median(found.single),
    singleInsertsPerSecond: median(found.insertSingle),
  };
}

/**
 * Events per second that reach a fast receiver, compared with bare posts from a Worker, and the
 * time from an event's record to its receipt if they come one at a time.
 */
export async function measureDelivering(runtime: Runtime, rounds: number, eventsARound: number) {
  const receiver = await startReceiver();
  const { workspaceId } = await openWorkspace(runtime, [receiver.url]);
  const perSecond = async (work: () => Promise<unknown>, before: () => Promise<unknown>) => {
    receiver.posts.length = 0;
    await before();
    const early = receiver.posts.length;
    const startedAt = performance.now();
    await work();
    await until(() => receiver.posts.length >= eventsARound, 120_000);
    return ((eventsARound - early) / (performance.now() - startedAt)) * 1000;
  };
  const nothing = async () => {};
  const query = new URLSearchParams({ url: receiver.url, count: String(eventsARound) });
  const found = { deliveries: [] as number[], posts: [] as number[] };
  for (let i = 0; i < rounds; i++) {
    found.deliveries.push(
      // Recording is measured separately; also, its calls block this process and so the receiver.
      await perSecond(nothing, async () => {
        for (let sent = 0; sent < eventsARound; sent += 100)
          await recordLeads(runtime, workspaceId, 100);
      }),
    );
    found.posts.push(await perSecond(() => call(runtime, `/bench/floor/post?${query}`), nothing));
  }
  receiver.posts.length = 0;
  for (let i = 0; i < 100; i++) {
    await recordLeads(runtime, workspaceId, 1);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await until(() => receiver.posts.length >= 100, 60_000);
  const waits = latencies([receiver]);
  await receiver.close();
  return {
    deliveriesPerSecond: median(found.deliveries),
    postsPerSecond: median(found.posts),
    receiptP50Ms: quantile(waits, 0.5),
    receiptP99Ms: quantile(waits, 0.99),
  };
}

async function call(runtime: Runtime, path: string): Promise<void> {
  const answer = await fetch(new URL(path, runtime.url));
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`${path} was answered ${answer.status}`);
}
