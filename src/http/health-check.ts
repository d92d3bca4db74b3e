import { sleep } from "../primitives/timing.ts";
import { isHealthy } from "../service-health.ts";
import { newApp } from "./context.ts";

/** How long an isolate repeats its last result, so that a flood costs the database nothing. */
const REMEMBERED_MS = 1_000;

/** How long an isolate repeats its last result while one request reads the database, which takes less time. */
const REMEMBERED_MAX_MS = 5_000;

/** How often a waiting request checks whether there is a result. */
const POLL_MS = 50;

interface Remembered {
  /** When the next request reads the database. */
  until: number;
  /** The last result; null while there is no recent one. */
  healthy: boolean | null;
}
const remembered = new WeakMap<D1Database, Remembered>();

/** The health check for monitors. It shows whether the service works; only operators see the problems. */
export const healthCheck = newApp();

healthCheck.get("/health", async (c) => {
  // `npm run deploy` must know which version it tests.
  c.header("X-Service-Version", c.env.CF_VERSION_METADATA.id);
  return (await wasHealthy(c.env)) ? c.json({ status: "ok" }) : c.body(null, 503);
});

/**
 * Whether the service was healthy within the last second. One request a second reads the database. The others repeat
 * its result, or wait for it if there is no recent one.
 */
async function wasHealthy(env: Env): Promise<boolean> {
  const known = remembered.get(env.DB) ?? { until: 0, healthy: null };
  remembered.set(env.DB, known);
  for (;;) {
    const now = Date.now();
    if (now >= known.until) {
      if (now >= known.until + REMEMBERED_MAX_MS) known.healthy = null;
      known.until = now + REMEMBERED_MS;
      known.healthy = await isHealthy(env, now);
      known.until = Date.now() + REMEMBERED_MS;
    }
    if (known.healthy !== null) return known.healthy;
    // It polls, because the runtime cancels the promise of the other request if its client hangs up.
    await sleep(POLL_MS);
  }
}
