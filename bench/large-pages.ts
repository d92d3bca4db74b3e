import { once } from "node:events";
import { Agent, get } from "node:http";
import { buffer } from "node:stream/consumers";
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
  // Over connections of its own: in a pool that both share, a read that follows a page on the same
  // connection is late although nothing else is going on.
  const agent = new Agent({ keepAlive: true });
  const headers = { Authorization: `Bearer ${large.apiKey}` };
  const ask = async () => {
    const [answer] = await once(
      get(new URL("/v1/leads?limit=100", runtime.url), { agent, headers }),
      "response",
    );
    await buffer(answer);
  };
  return measureBeside(runtime, rounds, PAGE_EVERY_MS, ask).finally(() => agent.destroy());
}
