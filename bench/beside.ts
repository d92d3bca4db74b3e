import type { Runtime } from "../scripts/shared/runtime.ts";
import { readWhile } from "./burst.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";
import { quantile } from "./statistics.ts";

const ROUND_MS = 6_000;
const AT_ONCE = 6;

/** Someone else's reads while others ask for much. */
export interface Beside {
  quiet: { readP50Ms: number; readP99Ms: number };
  beside: { readP50Ms: number; readP99Ms: number };
  /** p99 beside the others divided by p99 without them. */
  p99Ratio: number;
}

/**
 * Times `GET /v1/leads` alone, and while another workspace calls `ask` every `everyMs`, unless its last
 * requests have not been answered yet. Rounds alternate.
 */
export async function measureBeside(
  runtime: Runtime,
  rounds: number,
  everyMs: number,
  ask: () => Promise<unknown>,
): Promise<Beside> {
  const reader = await openWorkspace(runtime, []);
  await recordLeads(runtime, reader.workspaceId, 25);
  const [quiet, beside] = [[] as number[], [] as number[]];
  for (let i = 0; i < rounds; i++) {
    const end = performance.now() + ROUND_MS;
    quiet.push(...(await readWhile(runtime, reader.apiKey, () => performance.now() < end)));
    let areOpen = true;
    const asked = askForARound(everyMs, ask).finally(() => {
      areOpen = false;
    });
    beside.push(...(await readWhile(runtime, reader.apiKey, () => areOpen)));
    await asked;
  }
  const summary = (times: number[]) => ({
    readP50Ms: quantile(times, 0.5),
    readP99Ms: quantile(times, 0.99),
  });
  const found = { quiet: summary(quiet), beside: summary(beside) };
  return { ...found, p99Ratio: found.beside.readP99Ms / found.quiet.readP99Ms };
}

async function askForARound(everyMs: number, ask: () => Promise<unknown>): Promise<void> {
  const open = new Set<Promise<unknown>>();
  for (let askedMs = 0; askedMs < ROUND_MS; askedMs += everyMs) {
    if (open.size < AT_ONCE) {
      const asked = ask().finally(() => open.delete(asked));
      open.add(asked);
    }
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
  await Promise.all(open);
}
