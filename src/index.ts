import { consume } from "./delivery/consumer.ts";
import { app } from "./http/app.ts";
import { sweep } from "./sweep.ts";

export { AddressGate } from "./gate/address-gate.ts";
export { KeyGate } from "./gate/key-gate.ts";
export { Platform } from "./platform.ts";

export default {
  fetch: app.fetch,
  // The ingest door is loaded with its first batch: most isolates never see one.
  queue: async (batch, env) =>
    batch.queue.endsWith("deliveries")
      ? consume(batch, env)
      : (await import("./ingest.ts")).ingest(batch, env),
  scheduled: (controller, env) => sweep(env, controller.scheduledTime),
} satisfies ExportedHandler<Env>;
