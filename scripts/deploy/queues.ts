import { z } from "@hono/zod-openapi";
import type { Cloudflare } from "../shared/cloudflare.ts";
import type { FoundQueue } from "../shared/queues.ts";
import { print } from "../shared/terminal.ts";

/** Creates the queues that do not exist. Wrangler would create them without a jurisdiction. */
export async function makeQueues(
  { call }: Cloudflare,
  queues: FoundQueue[],
  jurisdiction: string,
): Promise<void> {
  for (const { name, id } of queues) {
    if (id !== null) continue;
    print(`Creating the queue ${name}.`);
    const place = jurisdiction && { jurisdiction };
    await call(z.unknown(), "POST", "/queues", { queue_name: name, ...place });
  }
}
