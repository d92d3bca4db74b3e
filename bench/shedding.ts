import autocannon from "autocannon";
import type { Runtime } from "../scripts/shared/runtime.ts";
import { mintApiKey } from "../src/quota/api-key.ts";
import { openWorkspace } from "./isolation.ts";
import { median, quantile } from "./statistics.ts";

const FLOOD_PER_SECOND = 500;
/** The flood starts before the well-behaved client and stops after it. */
const HEAD_START_SECONDS = 1;

/**
 * The effect of a flood on a well-behaved client: p99 of its reads with and without another program
 * that sends only invalid keys and a key over its quota, from one address. Rounds alternate.
 */
export async function measureShedding(runtime: Runtime, rounds: number, secondsARound: number) {
  const good = await openWorkspace(runtime, []);
  const { workspaceId } = await openWorkspace(runtime, []);
  const exhausted = await runtime.env.PLATFORM.createApiKey({ workspaceId, requestsPerWindow: 1 });
  const url = new URL("/v1/automations", runtime.url);
  const headers = (apiKey: string) => ({ Authorization: `Bearer ${apiKey}` });
  const round = async () => {
    const times: number[] = [];
    const end = performance.now() + secondsARound * 1000;
    while (performance.now() < end) {
      const startedAt = performance.now();
      const answer = await fetch(url, { headers: headers(good.apiKey) });
      await answer.arrayBuffer();
      times.push(performance.now() - startedAt);
      if (answer.status !== 200) throw new Error(`a good client was answered ${answer.status}`);
    }
    return quantile(times, 0.99);
  };
  let refused = 0;
  const flooded = async () => {
    const { API_KEY_CHECKSUM_KEYS } = runtime.env;
    const bad = [
      await mintApiKey(API_KEY_CHECKSUM_KEYS),
      "key_live_nonsense",
      String(exhausted.apiKey),
    ];
    const flood = autocannon({
      url: url.href,
      connections: 10,
      overallRate: FLOOD_PER_SECOND,
      duration: secondsARound + 2 * HEAD_START_SECONDS,
      // A thread of its own, so that its work is not mistaken for the server's slowness.
      workers: 1,
      requests: bad.map((apiKey) => ({ headers: headers(apiKey) })),
    });
    await new Promise((resolve) => setTimeout(resolve, HEAD_START_SECONDS * 1000));
    const p99 = await round();
    const { non2xx, errors } = await flood;
    if (errors > 0) throw new Error(`${errors} requests of the flood failed`);
    refused += non2xx;
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
