import { z } from "@hono/zod-openapi";
import { findServiceHealth } from "../service-health.ts";
import { operation } from "./operation.ts";

export const health = operation({
  about:
    "Shows whether the service works: all databases respond, the scheduled job runs, no delivery is stuck, and no database is nearly full.",
  input: z.strictObject({}),
  output: z.object({
    healthy: z.boolean(),
    problems: z.array(z.string()).describe("one sentence for each problem"),
  }),
  examples: [{}],
  run: ({ env }) => findServiceHealth(env, Date.now()),
});
