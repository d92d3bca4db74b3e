import { z } from "@hono/zod-openapi";
import { findServiceHealth } from "../service-health.ts";
import { operation } from "./operation.ts";

export const health = operation({
  about:
    "Tells whether the service works: its databases answer, the sweep runs, no delivery is stuck, no database is nearly full.",
  input: z.strictObject({}),
  output: z.object({
    healthy: z.boolean(),
    problems: z.array(z.string()).describe("what is wrong, a sentence each"),
  }),
  examples: [{}],
  run: ({ env }) => findServiceHealth(env, Date.now()),
});
