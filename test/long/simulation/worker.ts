import { pathToFileURL } from "node:url";

/** The entry points of the Worker, loaded from a source tree: the shipped one, or one with a planted bug. */
export interface LoadedWorker {
  Platform: new (ctx: unknown, env: unknown) => Record<string, (input: unknown) => Promise<never>>;
  consume: typeof import("../../../src/webhooks/dispatch/consumer.ts").consume;
  sweep: typeof import("../../../src/sweep.ts").sweep;
  commit: typeof import("../../../src/db/client.ts").commit;
  openDatabase: typeof import("../../../src/db/client.ts").openDatabase;
  withoutRetries: typeof import("../../../src/db/client.ts").withoutRetries;
  insertSubscription: typeof import("../../../src/webhooks/creation.ts").insertSubscription;
  findDataKey: typeof import("../../../src/workspaces/data-keys.ts").findDataKey;
  sealSecret: typeof import("../../../src/webhooks/secrets.ts").sealSecret;
  controlAutomation: typeof import("../../../src/records/control.ts").controlAutomation;
  deleteSubscription: typeof import("../../../src/webhooks/subscriptions.ts").deleteSubscription;
}

/**
 * Loads the Worker from the folder `src`. `cloudflare:workers` must already be replaced by a
 * stand-in.
 */
export async function loadWorker(src: string): Promise<LoadedWorker> {
  const load = (file: string) => import(new URL(file, pathToFileURL(`${src}/`)).href);
  const modules = await Promise.all([
    load("platform/entrypoint.ts"),
    load("webhooks/dispatch/consumer.ts"),
    load("sweep.ts"),
    load("db/client.ts"),
    load("webhooks/creation.ts"),
    load("webhooks/subscriptions.ts"),
    load("webhooks/secrets.ts"),
    load("workspaces/data-keys.ts"),
    load("records/control.ts"),
  ]);
  return Object.assign({}, ...modules);
}
