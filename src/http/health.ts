import { findHealth } from "../health.ts";
import { newApp } from "./context.ts";

/** How long an isolate repeats its last answer, so that a flood costs the databases nothing. */
const REMEMBERED_MS = 1_000;

const remembered = new WeakMap<D1Database, { until: number; healthy: boolean }>();

/** For monitors: whether the service works. Only operators are told what is wrong. */
export const health = newApp();

health.get("/health", async (c) => {
  // No rate limit to look up: it is nobody's.
  c.set("unmetered", true);
  return (await isHealthy(c.env)) ? c.json({ status: "ok" }) : c.body(null, 503);
});

async function isHealthy(env: Env): Promise<boolean> {
  const now = Date.now();
  const known = remembered.get(env.DB);
  if (known && now < known.until) return known.healthy;
  // One request looks, and the others repeat what was known. They do not wait for it: the runtime may
  // cancel it when its client hangs up.
  if (known) known.until = now + REMEMBERED_MS;
  const { healthy } = await findHealth(env, now);
  remembered.set(env.DB, { until: now + REMEMBERED_MS, healthy });
  return healthy;
}
