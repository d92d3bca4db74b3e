import type { Runtime } from "../scripts/shared/runtime.ts";
import { encodeCursor } from "../src/contract/cursor.ts";
import { hashApiKey } from "../src/rate-limit/key-text.ts";
import type { Samples } from "./figures.ts";
import {
  call,
  type Extent,
  meter,
  openWorkspace,
  recordAutomations,
  startOrShare,
  timed,
} from "./setting.ts";
import { median } from "./statistics.ts";

const EXTENTS = {
  full: { roundTripsMs: [0, 10, 20, 40, 80], samples: 25, leads: 1_000_000, pages: 200 },
  quick: { roundTripsMs: [0, 20, 40], samples: 7, leads: 100_000, pages: 20 },
  smoke: { roundTripsMs: [0, 5], samples: 1, leads: 4_000, pages: 1 },
};

/** Measures the network hops of a read, and the cost of a page of many leads. */
export async function measureReads(extent: Extent): Promise<Samples> {
  const { roundTripsMs, samples, leads, pages } = EXTENTS[extent];
  const runtime = await startOrShare("worker", extent);
  const hops = await measureHops(runtime, roundTripsMs, samples);
  const found = { ...hops, ...(await measurePages(runtime, leads, pages)) };
  await runtime.stop();
  return found;
}

/**
 * Measures the sequential hops of a read: the milliseconds that it takes longer for each millisecond of distance
 * between the Worker and its database and gates.
 */
async function measureHops(runtime: Runtime, roundTripsMs: number[], samples: number) {
  const { PLATFORM, KEY_GATE } = runtime.env;
  const { workspaceId, apiKey } = await openWorkspace(runtime);
  await recordAutomations(runtime, workspaceId);
  const usedUp = await PLATFORM.createApiKey({ workspaceId, requestsPerWindow: 1 });
  const read = (key: string, roundTripMs: number, expected = 200, path = "/v1/automations") => {
    const headers = { "X-Bench-Round-Trip-Ms": String(roundTripMs) };
    return timed(() => call(runtime, path, { apiKey: key, headers, expected }));
  };
  const ways = {
    hot_read_hops: (roundTripMs: number) => read(apiKey, roundTripMs),
    // The key has a warm gate, and this isolate has not seen it.
    cold_read_hops: async (roundTripMs: number) => {
      const made = await PLATFORM.createApiKey({ workspaceId });
      const [fresh, keyId] = [String(made.apiKey), String(made.keyId)];
      const keyHash = await hashApiKey(fresh);
      await KEY_GATE.getByName(keyHash).admit(keyHash);
      const ms = await read(fresh, roundTripMs);
      // A workspace has a limited number of live keys.
      await PLATFORM.revokeApiKey({ keyId });
      return ms;
    },
    naive_read_hops: (roundTripMs: number) => read(apiKey, roundTripMs, 200, "/bench/naive"),
    // After the previous request, the isolate has cached that the rate limit is reached.
    flood_hops: async (roundTripMs: number) => {
      await read(String(usedUp.apiKey), 0, 429);
      return read(String(usedUp.apiKey), roundTripMs, 429);
    },
  };
  await read(apiKey, 0);
  await read(String(usedUp.apiKey), 0);
  const names = Object.keys(ways) as (keyof typeof ways)[];
  const times = names.map(() => roundTripsMs.map((): number[] => []));
  for (let i = 0; i < samples; i++)
    for (const [r, roundTripMs] of roundTripsMs.entries())
      for (const [n, name] of names.entries()) times[n]?.[r]?.push(await ways[name](roundTripMs));
  return Object.fromEntries(
    names.map((name, n) => [name, [slope(roundTripsMs, (times[n] ?? []).map(median))]]),
  );
}

/** Computes the slope of `y` over `x` by least squares. */
function slope(x: number[], y: number[]): number {
  const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const [meanX, meanY] = [mean(x), mean(y)];
  const shared = mean(x.map((value, i) => (value - meanX) * ((y[i] ?? Number.NaN) - meanY)));
  return shared / mean(x.map((value) => (value - meanX) ** 2));
}

const LIMIT = 25;
const ROWS_AT_ONCE = 50_000;

/** Measures pages of 25 leads, at the top and deep down: the rows that D1 reads, and the time. */
async function measurePages(runtime: Runtime, rows: number, samples: number) {
  const { workspaceId, apiKey } = await openWorkspace(runtime);
  const pages = [1, 100, Math.floor(rows / LIMIT / 4)];
  const shown = new Set(
    pages.flatMap((page) =>
      Array.from({ length: LIMIT + 1 }, (_, i) => rows - (page - 1) * LIMIT - i),
    ),
  );
  await fill(runtime, workspaceId, rows, [...shown]);
  const times = pages.map((): number[] => []);
  let rowsRead = 0;
  for (let i = 0; i <= samples; i++)
    for (const [at, page] of pages.entries()) {
      const before = { at: rows - (page - 1) * LIMIT + 1, id: "lea_0" };
      const cursor = page === 1 ? "" : encodeCursor("leads", before);
      const path = `/v1/leads?limit=${LIMIT}&cursor=${cursor}`;
      const read = async () => {
        const { data } = (await (await call(runtime, path, { apiKey })).json()) as Page;
        if (data.length !== LIMIT) throw new Error(`a page held ${data.length} leads`);
      };
      const used = await meter(runtime, async () => {
        const ms = await timed(read);
        // The first round warms up.
        if (i > 0) times[at]?.push(ms);
      });
      rowsRead = Math.max(rowsRead, used.rowsRead);
    }
  const deepest = times.at(-1) ?? [];
  return {
    rows_read_over_limit: [rowsRead - LIMIT],
    deep_page_ratio: [median(deepest) / median(times[0] ?? [])],
  };
}

interface Page {
  data: unknown[];
}

/** Leads, number n created at n. Those that no page shows are fillers, which cannot be decrypted. */
async function fill(
  { env: { DB, PLATFORM } }: Runtime,
  workspaceId: string,
  rows: number,
  shown: number[],
): Promise<void> {
  for (let from = 0; from < rows; from += ROWS_AT_ONCE)
    await DB.prepare(
      `INSERT INTO leads (id, workspace_id, reference, source, agent_id, sealed, created_at, event_id)
      WITH RECURSIVE n (i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?)
      SELECT 'lea_' || i, ?, i, 'crm', 'agt_1', randomblob(120), i, '' FROM n
      WHERE i NOT IN (SELECT value FROM json_each(?))`,
    )
      .bind(from + 1, Math.min(rows, from + ROWS_AT_ONCE), workspaceId, JSON.stringify(shown))
      .run();
  const leads = shown.map((n) => ({
    reference: String(n),
    source: "crm" as const,
    agent: { reference: "agent", name: "Agent" },
    name: "Camille Durand",
    email: "camille.durand@example.com",
    customFields: { budget: "250000" },
    createdAt: new Date(n).toISOString(),
  }));
  await PLATFORM.recordLeads({ workspaceId, leads });
}
