import { createMiddleware } from "hono/factory";
import { READ_MAX_MS } from "../contract/limits.ts";
import { withTimeout } from "../primitives/timing.ts";
import { DatabaseUnreachable } from "../workspaces/placement.ts";
import type { AppEnv } from "./context.ts";

/**
 * Responds to a read that takes too long with an error, after which its client may repeat it. The route goes on, but its
 * response is dropped. A write is not ended, because its client must learn whether it has happened.
 */
export const endSlowReads = createMiddleware<AppEnv>(async (c, next) => {
  if (c.req.method !== "GET" && c.req.method !== "HEAD") return next();
  await withTimeout(READ_MAX_MS, next(), () => {
    throw new DatabaseUnreachable("the read took too long");
  });
});
