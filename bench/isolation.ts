import type { Runtime } from "../scripts/shared/runtime.ts";
import type { WebhookEvent } from "../src/contract/enumerations.ts";
import { type Receiver, startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { median, quantile } from "./statistics.ts";

const AGENT = { reference: "agent", name: "Agent" };
const HEALTHY = 9;
let references = 0;

/** A workspace in a database, with a subscription of each of `urls` to one kind of event. */
export async function openWorkspace(
  runtime: Runtime,
  urls: string[],
  database = "DB",
  kind: WebhookEvent = "lead.created",
) {
  const { workspaceId } = await runtime.env.PLATFORM.createWorkspace({ name: "Bench", database });
  const { apiKey } = await runtime.env.PLATFORM.createApiKey({ workspaceId });
  for (const url of urls) {
    const answer = await fetch(new URL("/v1/webhooks", runtime.url), {
      method: "POST",
      headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
      body: JSON.stringify({ url, events: [kind] }),
    });
    if (answer.status !== 201) throw new Error(`subscribing answered ${answer.status}`);
  }
  return { workspaceId: String(workspaceId), apiKey: String(apiKey) };
}

/** Records `count` leads in one call. */
export async function recordLeads(runtime: Runtime, workspaceId: string, count: number) {
  const leads = Array.from({ length: count }, () => ({
    reference: `lead-${++references}`,
    source: "crm" as const,
    agent: AGENT,
    name: "Lead",
  }));
  await runtime.env.PLATFORM.recordLeads({ workspaceId, leads });
}

/** Milliseconds from an event's record to each receipt. */
export function latencies(receivers: Receiver[]): number[] {
  return receivers.flatMap(({ posts }) =>
    posts.map(({ body, at }) => at - Date.parse(JSON.parse(body.toString()).created_at)),
  );
}

type IsolationGround = Awaited<ReturnType<typeof prepareIsolation>>;

/**
 * Two workspaces with nine healthy subscriptions each, and a tenth: one is healthy too, the other
 * hangs on every request. It takes as long as the first of those.
 */
export async function prepareIsolation(runtime: Runtime) {
  const receivers = await Promise.all(Array.from({ length: HEALTHY }, () => startReceiver()));
  const [tenth, hanging] = await Promise.all([
    startReceiver(),
    startReceiver(() => new Promise<number>(() => {})),
  ]);
  const urls = receivers.map(({ url }) => url);
  const good = await openWorkspace(runtime, [...urls, tenth.url]);
  const bad = await openWorkspace(runtime, [...urls, hanging.url]);
  // The first failures of the one that hangs.
  await recordLeads(runtime, bad.workspaceId, 1);
  await until(
    async () =>
      (await runtime.env.DB.prepare("SELECT 1 FROM subscriptions WHERE failing_since > 0").all())
        .results.length > 0,
    30_000,
  );
  return { runtime, receivers, tenth, hanging, good, bad };
}

/**
 * How much a subscription that hangs on every request slows down nine healthy ones, once it has
 * failed: p99 from record to receipt, compared with a tenth healthy one. Rounds alternate.
 */
export async function measureIsolation(
  { runtime, receivers, tenth, hanging, good, bad }: IsolationGround,
  rounds: number,
  eventsARound: number,
) {
  const round = async (workspaceId: string) => {
    for (const { posts } of receivers) posts.length = 0;
    for (let i = 0; i < eventsARound; i++) {
      await recordLeads(runtime, workspaceId, 1);
      await new Promise((resolve) => setTimeout(resolve, 40));
    }
    await until(() => receivers.every(({ posts }) => posts.length >= eventsARound), 120_000);
    return latencies(receivers);
  };
  await round(good.workspaceId);
  const p99 = { good: [] as number[], bad: [] as number[] };
  for (let i = 0; i < rounds; i++) {
    p99.good.push(quantile(await round(good.workspaceId), 0.99));
    p99.bad.push(quantile(await round(bad.workspaceId), 0.99));
  }
  await Promise.all([...receivers, tenth, hanging].map((receiver) => receiver.close()));
  return {
    healthyP99Ms: median(p99.good),
    besideHangingP99Ms: median(p99.bad),
    isolationRatio: median(p99.bad) / median(p99.good),
  };
}

/**
 * How long one workspace's single event waits behind another's burst, in milliseconds and in
 * consumer invocations: each claims at most 100 of the burst's deliveries.
 */
export async function measureFairness(runtime: Runtime, burst: number) {
  const [crowd, lone] = await Promise.all([startReceiver(), startReceiver()]);
  const a = await openWorkspace(runtime, [crowd.url]);
  const b = await openWorkspace(runtime, [lone.url]);
  for (let i = 0; i < burst; i += 100) await recordLeads(runtime, a.workspaceId, 100);
  const before = crowd.posts.length;
  await recordLeads(runtime, b.workspaceId, 1);
  await until(() => lone.posts.length === 1, 120_000);
  const meanwhile = crowd.posts.length - before;
  const [waitedMs] = latencies([lone]);
  await until(() => crowd.posts.length >= burst, 300_000);
  await Promise.all([crowd.close(), lone.close()]);
  return { waitedMs: waitedMs ?? Number.NaN, batchesWaited: meanwhile / 100, left: burst - before };
}
