import type { Runtime } from "../scripts/shared/runtime.ts";
import { type Beside, measureBeside } from "./beside.ts";
import { openWorkspace } from "./isolation.ts";

const LEADS = 100;
const LEAD_BYTES = 64_000;
/** What the default quota allows, evenly spread. */
const PAGE_EVERY_MS = 100;

/** Times reads beside a key that asks for a hundred leads of 64 KB ten times a second. */
export async function measureLargePages(runtime: Runtime, rounds: number): Promise<Beside> {
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
  return measureBeside(runtime, rounds, PAGE_EVERY_MS, async () => {
    const answer = await fetch(new URL("/v1/leads?limit=100", runtime.url), {
      headers: { Authorization: `Bearer ${large.apiKey}` },
    });
    await answer.arrayBuffer();
  });
}
