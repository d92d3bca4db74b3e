import type { Samples } from "./figures.ts";
import { call, type Extent, openWorkspace, recordLeads, startOrShare, timed } from "./setting.ts";

const EXTENTS = {
  full: { rounds: 5, leads: 5_000 },
  quick: { rounds: 3, leads: 2_000 },
  smoke: { rounds: 1, leads: 200 },
};

/** Measures leads per second through the Platform API, compared with raw inserts. Rounds alternate. */
export async function measureRecording(extent: Extent): Promise<Samples> {
  const { rounds, leads } = EXTENTS[extent];
  const runtime = await startOrShare("worker", extent);
  const { workspaceId } = await openWorkspace(runtime);
  const insert = `/bench/insert?workspace=${workspaceId}&count=${leads}`;
  const [recorded, ratios] = [[] as number[], [] as number[]];
  await recordLeads(runtime, workspaceId, leads);
  for (let i = 0; i < rounds; i++) {
    const recordMs = await timed(() => recordLeads(runtime, workspaceId, leads));
    const insertMs = await timed(() => call(runtime, insert));
    recorded.push((leads / recordMs) * 1000);
    ratios.push(insertMs / recordMs);
  }
  await runtime.stop();
  return { leads_per_second: recorded, recording_ratio: ratios };
}
