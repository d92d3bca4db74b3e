import autocannon from "autocannon";
import type { Samples } from "./figures.ts";
import { type Bundle, type Extent, openWorkspace, recordAutomations, start } from "./setting.ts";

const CONNECTIONS = 10;

const EXTENTS = {
  full: { warmUpSeconds: 3, rounds: 10, seconds: 3 },
  quick: { warmUpSeconds: 3, rounds: 6, seconds: 2 },
  smoke: { warmUpSeconds: 0, rounds: 1, seconds: 1 },
};

/**
 * Measures a page of 25 automations, by the shipped Worker and by a bare handler over the same gate and query.
 * Rounds alternate, and so does the order within them, because both still warm up.
 */
export async function measureFramework(extent: Extent): Promise<Samples> {
  const { warmUpSeconds, rounds, seconds } = EXTENTS[extent];
  const [shipped, bare] = [await startLoaded("shipped"), await startLoaded("bare")];
  for (const { load } of [shipped, bare]) if (warmUpSeconds > 0) await load(warmUpSeconds);
  const ratios: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const first = await (i % 2 === 0 ? shipped : bare).load(seconds);
    const second = await (i % 2 === 0 ? bare : shipped).load(seconds);
    ratios.push(i % 2 === 0 ? first / second : second / first);
  }
  for (const { stop } of [shipped, bare]) await stop();
  return { framework_ratio: ratios };
}

async function startLoaded(bundle: Bundle) {
  const runtime = await start(bundle);
  const { workspaceId, apiKey } = await openWorkspace(runtime);
  await recordAutomations(runtime, workspaceId);
  /** @returns the requests answered per second. */
  const load = async (seconds: number) => {
    const { requests, non2xx, errors } = await autocannon({
      url: new URL("/v1/automations", runtime.url).href,
      connections: CONNECTIONS,
      duration: seconds,
      headers: { Authorization: `Bearer ${apiKey}` },
    });
    if (non2xx > 0 || errors > 0) throw new Error(`${non2xx + errors} requests failed`);
    return requests.average;
  };
  return { load, stop: runtime.stop };
}
