import type { Runtime } from "../scripts/shared/runtime.ts";
import { readWhile } from "./burst.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";
import { quantile } from "./statistics.ts";

const LEADS = 100;
const LEAD_BYTES = 64_000;
const ROUND_MS = 6_000;
/** What the default quota allows, evenly spread. */
const PAGE_EVERY_MS = 100;
const PAGES_AT_ONCE = 6;

/** Someone else's reads while a key asks for pages of the largest leads. */
export interface LargePages {
  quiet: { readP50Ms: number; readP99Ms: number };
  beside: { readP50Ms: number; readP99Ms: number };
  /** p99 beside the large pages divided by p99 without them. */
  p99Ratio: number;
}

/**
 * Times `GET /v1/leads` alone, and while a key of another workspace asks for a hundred leads of 64 KB ten
 * times a second. Rounds alternate.
 */
export async function measureLargePages(runtime: Runtime, rounds: number): Promise<LargePages> {
  const reader = await openWorkspace(runtime, []);
  await recordLeads(runtime, reader.workspaceId, 25);
  const large = await openWorkspace(runtime, []);
  for (let i = 0; i < LEADS; i += 10) {
    const leads = Array.from({ length: 10 }, (_, j) => ({
      reference: `large-${i + j}`,
      source: "crm" as const,
      agent: { reference: "agent", name: "Agent" },
      customFields: { text: "x".repeat(LEAD_BYTES) },
    }));
    await runtime.env.PLATFORM.recordLeads({ workspaceId: large.workspaceId, leads });
  }
  const [quiet, beside] = [[] as number[], [] as number[]];
  for (let i = 0; i < rounds; i++) {
    const end = performance.now() + ROUND_MS;
    quiet.push(...(await readWhile(runtime, reader.apiKey, () => performance.now() < end)));
    let areOpen = true;
    const pages = askForPages(runtime, large.apiKey).finally(() => {
      areOpen = false;
    });
    beside.push(...(await readWhile(runtime, reader.apiKey, () => areOpen)));
    await pages;
  }
  const summary = (times: number[]) => ({
    readP50Ms: quantile(times, 0.5),
    readP99Ms: quantile(times, 0.99),
  });
  const found = { quiet: summary(quiet), beside: summary(beside) };
  return { ...found, p99Ratio: found.beside.readP99Ms / found.quiet.readP99Ms };
}

/** Asks for a page every 100 ms for the duration of a round, unless the last ones have not come yet. */
async function askForPages(runtime: Runtime, apiKey: string): Promise<void> {
  const pages = new Set<Promise<unknown>>();
  for (let askedMs = 0; askedMs < ROUND_MS; askedMs += PAGE_EVERY_MS) {
    if (pages.size < PAGES_AT_ONCE) {
      const page = askForPage(runtime, apiKey).finally(() => pages.delete(page));
      pages.add(page);
    }
    await new Promise((resolve) => setTimeout(resolve, PAGE_EVERY_MS));
  }
  await Promise.all(pages);
}

async function askForPage(runtime: Runtime, apiKey: string): Promise<void> {
  const answer = await fetch(new URL("/v1/leads?limit=100", runtime.url), {
    headers: { Authorization: `Bearer ${apiKey}` },
  });
  await answer.arrayBuffer();
}
