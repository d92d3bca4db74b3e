import { join } from "node:path";
import autocannon from "autocannon";
import { buildSync } from "esbuild";
import { ROOT } from "../scripts/shared/checkout.ts";
import { buildWorker, type Runtime, startRuntime } from "../scripts/shared/runtime.ts";
import type { WebhookEvent } from "../src/contract/enumerations.ts";
import type { Receiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Meters } from "./worker.ts";

/** How much a bench measures: `smoke` only shows that it still runs. */
export type Extent = "full" | "quick" | "smoke";

/** Workers that benches run: the one that is shipped, or an entry in `bench/`. */
export type Bundle = "shipped" | "worker" | "bare" | "by-hand";

const QUOTA = { QUOTA_REQUESTS: 100_000_000 };
/** The bundles that are built, by name; tests have built the one that is shipped. */
const built = new Map<Bundle, string>(
  process.env.WORKER_IS_BUILT ? [["shipped", join(ROOT, "dist/worker/index.js")]] : [],
);

/** Starts a Worker without a quota that a bench could use up. Each bundle is built once. */
export function start(
  name: Bundle,
  options: { databases?: number; onLog?: (line: string) => void } = {},
): Promise<Runtime> {
  const bundle = built.get(name) ?? (name === "shipped" ? buildWorker() : buildEntry(name));
  built.set(name, bundle);
  return startRuntime({ ...options, bundle, vars: QUOTA });
}

/** The runtimes of a smoke run, by bundle: its figures say nothing, so benches may disturb each other. */
const shared = new Map<Bundle, Promise<Runtime>>();

/** Starts a Worker as `start` does, or, in a smoke run, uses the one that another bench has started. */
export async function startOrShare(name: Bundle, extent: Extent): Promise<Runtime> {
  if (extent !== "smoke") return start(name);
  const started = shared.get(name) ?? start(name);
  shared.set(name, started);
  const runtime = await started;
  const stop = async () => {
    // Another bench may wait until nothing is pending.
    await runtime.env.DB.exec("DELETE FROM deliveries");
  };
  return { ...runtime, stop };
}

/** Builds an entry in `bench/` with the settings of wrangler, which takes seconds to start. @returns the bundle. */
function buildEntry(name: Bundle): string {
  const outfile = join(ROOT, `dist/bench/${name}.js`);
  buildSync({
    entryPoints: [join(import.meta.dirname, `${name}.ts`)],
    outfile,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2024",
    supported: { using: true },
    conditions: ["workerd", "worker", "browser"],
    external: ["cloudflare:*", "node:*"],
  });
  return outfile;
}

const AGENT = { reference: "agent", name: "Agence Lumière" };
let references = 0;

/** A workspace with its key, and a subscription of each of `urls` to one event type. */
export async function openWorkspace(
  runtime: Runtime,
  urls: string[] = [],
  kind: WebhookEvent = "lead.created",
) {
  const { workspaceId } = await runtime.env.PLATFORM.createWorkspace({ name: "Bench" });
  const { apiKey } = await runtime.env.PLATFORM.createApiKey({ workspaceId });
  for (const url of urls) {
    const answer = await fetch(new URL("/v1/webhooks", runtime.url), {
      method: "POST",
      headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
      body: JSON.stringify({ url, events: [kind] }),
    });
    if (answer.status !== 201) throw new Error(`subscribing got status ${answer.status}`);
  }
  return { workspaceId: String(workspaceId), apiKey: String(apiKey) };
}

/** Records `count` leads, at most a hundred in a call. */
export async function recordLeads(runtime: Runtime, workspaceId: string, count: number) {
  for (let left = count; left > 0; left -= 100) {
    const leads = Array.from({ length: Math.min(left, 100) }, () => ({
      reference: `lead-${++references}`,
      source: "crm" as const,
      agent: AGENT,
      name: "Lead",
    }));
    await runtime.env.PLATFORM.recordLeads({ workspaceId, leads });
    // Miniflare's calls block this thread, which reads what the runtime prints: unless it does so in
    // between, the pipe fills up, and both wait for each other forever.
    await sleep(0);
  }
}

/** Records 25 automations: one page. */
export async function recordAutomations(runtime: Runtime, workspaceId: string) {
  const automations = Array.from({ length: 25 }, (_, i) => ({
    reference: `automation-${i}`,
    type: "social_comments" as const,
    provider: "instagram",
    agent: AGENT,
    status: "active" as const,
  }));
  await runtime.env.PLATFORM.recordAutomations({ workspaceId, automations });
}

/** Returns the milliseconds from the record of each event to its first receipt. */
export function latencies(receivers: Receiver[], since = 0): number[] {
  return receivers.flatMap(({ posts }) => {
    const waits = new Map<string, number>();
    for (const { body, at } of posts) {
      const { id, created_at } = JSON.parse(body.toString()) as { id: string; created_at: string };
      const createdAt = Date.parse(created_at);
      if (createdAt >= since && !waits.has(id)) waits.set(id, at - createdAt);
    }
    return [...waits.values()];
  });
}

/** Calls one of the bench's own routes, or an operation of the API. @throws Error if it fails. */
export async function call(
  runtime: Runtime,
  path: string,
  { apiKey, expected = 200, ...init }: RequestInit & { apiKey?: string; expected?: number } = {},
): Promise<Response> {
  const headers = { ...init.headers, ...(apiKey ? { Authorization: `Bearer ${apiKey}` } : {}) };
  const ask = () => fetch(new URL(path, runtime.url), { ...init, headers });
  // The runtime may close an idle connection just as it is used again.
  const answer = await ask().catch(ask);
  const text = await answer.text();
  if (answer.status !== expected)
    throw new Error(`${path} responded with ${answer.status}: ${text}`);
  return new Response(text || null);
}

/** Meters the use of the Worker's bindings while `work` is done. */
export async function meter(runtime: Runtime, work: () => Promise<unknown>): Promise<Meters> {
  await call(runtime, "/bench/reset");
  await work();
  return (await (await call(runtime, "/bench/meters")).json()) as Meters;
}

/** A load of reads: for some seconds, or of so many requests. */
export type Load = { duration: number } | { amount: number };

/** A load that only shows that reads succeed. */
export const SMOKE_LOAD: Load = { amount: 20 };

/** Reads pages of automations over ten connections, as fast as they are answered. */
export async function readsPerSecond(
  runtime: Runtime,
  apiKey: string,
  load: Load,
): Promise<number> {
  const { requests, non2xx, errors } = await autocannon({
    url: new URL("/v1/automations", runtime.url).href,
    connections: 10,
    headers: { Authorization: `Bearer ${apiKey}` },
    ...load,
  });
  if (non2xx > 0 || errors > 0) throw new Error(`${non2xx + errors} reads failed`);
  return requests.average;
}

/** How long a client waits between two reads. */
const READ_EVERY_MS = 10;

/** Reads in sequence, and returns the duration of each read in milliseconds. */
export async function readUntil(runtime: Runtime, apiKey: string, isOver: () => boolean) {
  const times: number[] = [];
  while (!isOver()) {
    times.push(await timed(() => call(runtime, "/v1/leads", { apiKey })));
    await sleep(READ_EVERY_MS);
  }
  return times;
}

/** Waits for so many posts. @returns when the last of them came, in Unix milliseconds, however late it is noticed. */
export async function timeOfPost({ posts }: Receiver, count: number): Promise<number> {
  await until(() => posts.length >= count, 120_000);
  return posts[count - 1]?.at ?? Number.NaN;
}

/** Does work, and returns how long it took, in milliseconds. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}
