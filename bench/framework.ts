import type { Samples } from "./figures.ts";
import {
  type Bundle,
  type Extent,
  type Load,
  openWorkspace,
  readsPerSecond,
  recordAutomations,
  SMOKE_LOAD,
  startOrShare,
} from "./setting.ts";

const EXTENTS: Record<Extent, { warmUp: Load; rounds: number; load: Load }> = {
  full: { warmUp: { duration: 3 }, rounds: 10, load: { duration: 3 } },
  quick: { warmUp: { duration: 3 }, rounds: 6, load: { duration: 2 } },
  smoke: { warmUp: SMOKE_LOAD, rounds: 1, load: SMOKE_LOAD },
};

/**
 * Measures a page of 25 automations, by the shipped Worker and by a bare handler over the same gate and query.
 * Rounds alternate, and so does the order within them, because both still warm up.
 */
export async function measureFramework(extent: Extent): Promise<Samples> {
  const { warmUp, rounds, load } = EXTENTS[extent];
  const [shipped, bare] = [await startFilled("shipped", extent), await startFilled("bare", extent)];
  for (const { read } of [shipped, bare]) await read(warmUp);
  const ratios: number[] = [];
  for (let i = 0; i < rounds; i++) {
    const first = await (i % 2 === 0 ? shipped : bare).read(load);
    const second = await (i % 2 === 0 ? bare : shipped).read(load);
    ratios.push(i % 2 === 0 ? first / second : second / first);
  }
  for (const { stop } of [shipped, bare]) await stop();
  return { framework_ratio: ratios };
}

async function startFilled(bundle: Bundle, extent: Extent) {
  const runtime = await startOrShare(bundle, extent);
  const { workspaceId, apiKey } = await openWorkspace(runtime);
  await recordAutomations(runtime, workspaceId);
  return { read: (load: Load) => readsPerSecond(runtime, apiKey, load), stop: runtime.stop };
}
