import { isWake } from "./delivery/wake.ts";
import { consume } from "./doors/deliveries.ts";
import { app } from "./doors/http/app.ts";
import { ingest } from "./doors/ingest.ts";
import { sweep } from "./doors/sweep.ts";

export { Platform } from "./doors/platform.ts";
export { AddressGate } from "./gate/address-gate.ts";
export { KeyGate } from "./gate/key-gate.ts";

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
