import { pathToFileURL } from "node:url";

/** The entry points of the Worker, loaded from a source tree: the shipped one, or one with a planted bug. */
export interface LoadedWorker {
  Platform: new (ctx: unknown, env: unknown) => Record<string, (input: unknown) => Promise<never>>;
  consume: typeof import("../../../src/delivery/consumer.ts").consume;
  consumeEmails: typeof import("../../../src/email/send.ts").consumeEmails;
  sweep: typeof import("../../../src/sweep.ts").sweep;
  commit: typeof import("../../../src/db/client.ts").commit;
  openDatabase: typeof import("../../../src/db/client.ts").openDatabase;
  withoutRetries: typeof import("../../../src/db/client.ts").withoutRetries;
  insertSubscription: typeof import("../../../src/subscriptions/creation.ts").insertSubscription;
  loadDataKeyToWrite: typeof import("../../../src/workspaces/data-keys.ts").loadDataKeyToWrite;
  sealSecret: typeof import("../../../src/endpoints/secrets.ts").sealSecret;
  controlAutomation: typeof import("../../../src/records/automation-changes.ts").controlAutomation;
  deleteSubscription: typeof import("../../../src/subscriptions/subscriptions.ts").deleteSubscription;
}

/**
 * Loads the Worker from the folder `src`. `cloudflare:workers` must already be replaced by a
 * stand-in.
 */
export async function loadWorker(src: string): Promise<LoadedWorker> {
  const load = (file: string) => import(new URL(file, pathToFileURL(`${src}/`)).href);
  const modules = await Promise.all([
    load("platform/entrypoint.ts"),
    load("delivery/consumer.ts"),
    load("email/send.ts"),
    load("sweep.ts"),
    load("db/client.ts"),
    load("subscriptions/creation.ts"),
    load("subscriptions/subscriptions.ts"),
    load("endpoints/secrets.ts"),
    load("workspaces/data-keys.ts"),
    load("records/automation-changes.ts"),
  ]);
  return Object.assign({}, ...modules);
}
