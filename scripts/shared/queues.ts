import { z } from "@hono/zod-openapi";
import type { Cloudflare } from "./cloudflare.ts";

const Queues = z.array(
  z.object({
    queue_id: z.string(),
    queue_name: z.string(),
    jurisdiction: z.string().nullish(),
    settings: z.object({ delivery_paused: z.boolean().nullish() }).nullish(),
  }),
);

/** A queue that the configuration names. */
export interface FoundQueue {
  name: string;
  /** Null if it does not exist. */
  id: string | null;
  /** Where it is stored; empty: in no jurisdiction. */
  jurisdiction: string;
  /** Whether its messages wait, because an operator or a restore has paused it. */
  isPaused: boolean;
}

/** Looks the queues up. */
export function findQueues({ call }: Cloudflare, names: string[]): Promise<FoundQueue[]> {
  return Promise.all(
    names.map(async (name) => {
      const listed = await call(Queues, "GET", `/queues?page=1&name=${encodeURIComponent(name)}`);
      const found = listed.find((each) => each.queue_name === name);
      return {
        name,
        id: found?.queue_id ?? null,
        jurisdiction: found?.jurisdiction ?? "",
        isPaused: found?.settings?.delivery_paused ?? false,
      };
    }),
  );
}
