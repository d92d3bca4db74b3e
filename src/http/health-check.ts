import { isHealthy } from "../service-health.ts";
import { sleep } from "../timing.ts";
import { newApp } from "./context.ts";

/** How long an isolate repeats its last answer, so that a flood costs the database nothing. */
const REMEMBERED_MS = 1_000;

/** How long it repeats that answer while one request asks the database: longer than this can take. */
const REMEMBERED_MAX_MS = 5_000;

/** How often a request checks whether the one that asks has an answer. */
const WAIT_MS = 50;

interface Remembered {
  /** When the next request asks the database. */
  until: number;
  /** Null while there is no recent answer. */
  healthy: boolean | null;
}
const remembered = new WeakMap<D1Database, Remembered>();

/** For monitors: whether the last sweep found that the service works. Only operators are told what is wrong. */
export const health = newApp();

health.get("/health", async (c) => {
  return (await wasHealthy(c.env)) ? c.json({ status: "ok" }) : c.body(null, 503);
});

/**
 * One request a second asks the database; the others repeat its answer, or wait for it if there is no recent
 * one.
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
    // Polls, because the runtime cancels the other request's promise if its client hangs up.
    await sleep(WAIT_MS);
  }
}
