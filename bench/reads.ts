import type { Runtime } from "../scripts/shared/runtime.ts";
import { hashApiKey } from "../src/quota/api-key.ts";
import { openWorkspace } from "./isolation.ts";
import { median } from "./statistics.ts";

/** A way of reading `GET /v1/automations`. */
export const READS = ["hot", "cold", "naive", "flood"] as const;
export type Read = (typeof READS)[number];

/** Median duration of each way of reading, by the round-trip time to the database and the gates. */
export interface Distances {
  roundTripsMs: number[];
  times: Record<Read, number[]>;
  /** Milliseconds added per millisecond of round-trip time: the sequential hops of a request. */
  hops: Record<Read, number>;
}

/** @param runtime runs the bundle of `bench/worker.ts`. */
export async function measureReads(
  runtime: Runtime,
  roundTripsMs: number[],
  samples: number,
): Promise<Distances> {
  const { workspaceId, apiKey } = await openWorkspace(runtime, []);
  await recordAutomations(runtime, workspaceId, 25);
  const usedUp = await runtime.env.PLATFORM.createApiKey({ workspaceId, requestsPerWindow: 1 });
  const ask: Record<Read, (roundTripMs: number) => Promise<number>> = {
    hot: (roundTripMs) => read(runtime, apiKey, roundTripMs, 200),
    // A key with a warm gate that this isolate has not seen.
    cold: async (roundTripMs) => {
      const fresh = await runtime.env.PLATFORM.createApiKey({ workspaceId });
      const key = String(fresh.apiKey);
      const keyHash = await hashApiKey(key);
      await runtime.env.KEY_GATE.getByName(keyHash).admit(keyHash);
      return read(runtime, key, roundTripMs, 200);
    },
    naive: (roundTripMs) => read(runtime, apiKey, roundTripMs, 200, "/bench/naive"),
    // The previous request tells the isolate that the quota is used up.
    flood: async (roundTripMs) => {
      await read(runtime, String(usedUp.apiKey), 0, 429);
      return read(runtime, String(usedUp.apiKey), roundTripMs, 429);
    },
  };
  await read(runtime, apiKey, 0, 200);
  await read(runtime, String(usedUp.apiKey), 0, 200);
  const times: Record<Read, number[]> = { hot: [], cold: [], naive: [], flood: [] };
  for (const roundTripMs of roundTripsMs) {
    const found: Record<Read, number[]> = { hot: [], cold: [], naive: [], flood: [] };
    for (let i = 0; i < samples; i++)
      for (const way of READS) found[way].push(await ask[way](roundTripMs));
    for (const way of READS) times[way].push(median(found[way]));
  }
  const hops = {} as Record<Read, number>;
  for (const way of READS) hops[way] = slope(roundTripsMs, times[way]);
  return { roundTripsMs, times, hops };
}

/** Records automations of a workspace in one call. */
export async function recordAutomations(runtime: Runtime, workspaceId: string, count: number) {
  const automations = Array.from({ length: count }, (_, i) => ({
    reference: `automation-${i}`,
    type: "social_comments" as const,
    provider: "instagram",
    agent: { reference: "agent", name: "Agence Lumière" },
    status: "active" as const,
  }));
  await runtime.env.PLATFORM.recordAutomations({ workspaceId, automations });
}

async function read(
  runtime: Runtime,
  apiKey: string,
  roundTripMs: number,
  expected: number,
  prefix = "",
): Promise<number> {
  const startedAt = performance.now();
  const answer = await fetch(new URL(`${prefix}/v1/automations`, runtime.url), {
    headers: {
      Authorization: `Bearer ${apiKey}`,
      "X-Bench-Round-Trip-Ms": String(roundTripMs),
    },
  });
  await answer.arrayBuffer();
  if (answer.status !== expected) throw new Error(`a read was answered ${answer.status}`);
  return performance.now() - startedAt;
}

/** The slope of `y` over `x`: least squares. */
function slope(x: number[], y: number[]): number {
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [meanX, meanY] = [mean(x), mean(y)];
  const shared = mean(x.map((value, i) => (value - meanX) * ((y[i] ?? Number.NaN) - meanY)));
  return shared / mean(x.map((value) => (value - meanX) ** 2));
}
