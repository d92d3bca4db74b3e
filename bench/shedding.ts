import type { Runtime } from "../scripts/runtime.ts";
import { mintApiKey } from "../src/gate/api-key.ts";
import { openWorkspace } from "./isolation.ts";
import { median, quantile } from "./statistics.ts";

const FLOODERS = 10;

/**
 * What a flood does to a good client: p99 of its reads with and without clients beside it that send
 * nothing but bad keys and a key whose quota is used up. Rounds of both alternate.
 */
export async function measureShedding(runtime: Runtime, rounds: number, readsARound: number) {
  const good = await openWorkspace(runtime, []);
  const { workspaceId } = await openWorkspace(runtime, []);
  const exhausted = await runtime.env.PLATFORM.createApiKey({ workspaceId, requestsPerWindow: 1 });
  const read = async (apiKey: string) => {
    const startedAt = performance.now();
    const answer = await fetch(new URL("/v1/automations", runtime.url), {
      headers: { Authorization: `Bearer ${apiKey}` },
    });
    await answer.arrayBuffer();
    return { status: answer.status, ms: performance.now() - startedAt };
  };
  const round = async () => {
    const times: number[] = [];
    for (let i = 0; i < readsARound; i++) {
      const { status, ms } = await read(good.apiKey);
      if (status !== 200) throw new Error(`a good client was answered ${status}`);
      times.push(ms);
    }
    return quantile(times, 0.99);
  };
  let refused = 0;
  const flooded = async () => {
    let going = true;
    const bad = [mintApiKey(), "key_live_nonsense", String(exhausted.apiKey)];
    // As fast as the loopback lets them, each one request at a time.
    const clients = Array.from({ length: FLOODERS }, async (_, i) => {
      while (going) if ((await read(bad[i % bad.length] ?? "")).status >= 400) refused++;
    });
    const p99 = await round();
    going = false;
    await Promise.all(clients);
    return p99;
  };
  await round();
  const p99 = { alone: [] as number[], flooded: [] as number[] };
  for (let i = 0; i < rounds; i++) {
    p99.alone.push(await round());
    p99.flooded.push(await flooded());
  }
  return { aloneP99Ms: median(p99.alone), floodedP99Ms: median(p99.flooded), refused };
}
