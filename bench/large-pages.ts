import { fork } from "node:child_process";
import { on } from "node:events";
import { join } from "node:path";
import type { Runtime } from "../scripts/shared/runtime.ts";
import { type Beside, measureBeside } from "./beside.ts";
import { openWorkspace } from "./isolation.ts";
import type { Asked } from "./reader.ts";

const LEADS = 100;
const LEAD_BYTES = 16_000;
/** What the default quota allows, evenly spread. */
const PAGE_EVERY_MS = 100;

/** Times reads beside a key that asks for a hundred leads of 16 KB ten times a second. */
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
  // By a process of its own: what is read here would delay the reads that are timed.
  const reader = fork(join(import.meta.dirname, "reader.ts"));
  const url = new URL("/v1/leads?limit=100", runtime.url).href;
  const headers = { Authorization: `Bearer ${large.apiKey}` };
  let asked = 0;
  const ask = async () => {
    const id = asked++;
    reader.send({ id, url, headers } satisfies Asked);
    for await (const [answered] of on(reader, "message")) if (answered === id) break;
  };
  return measureBeside(runtime, rounds, PAGE_EVERY_MS, ask).finally(() => reader.kill());
}
