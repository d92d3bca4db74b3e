import { env } from "cloudflare:workers";
import { refuseFormerName } from "./encryption/former-name.ts";
import { app } from "./http/app.ts";
import { ingest } from "./records/ingest/consumer.ts";
import { sweep } from "./sweep.ts";
import { consume } from "./webhooks/dispatch/consumer.ts";
import { isWake } from "./webhooks/dispatch/wake.ts";

export { Platform } from "./platform/entrypoint.ts";
export { AddressGate } from "./quota/address-gate.ts";
export { KeyGate } from "./quota/key-gate.ts";

refuseFormerName((name) => name in env);

export default {
  fetch: app.fetch,
  async queue({ messages }, env, ctx) {
    // Told apart by their content: a deployment may rename its queues.
    const wakes = messages.filter((message) => isWake(message, env));
    const records = messages.filter((message) => !isWake(message, env));
    await Promise.all([
      wakes.length > 0 && consume(wakes, env, ctx),
      records.length > 0 && ingest(records, env),
    ]);
  },
  scheduled: (controller, env) => sweep(env, controller.scheduledTime),
} satisfies ExportedHandler<Env>;
