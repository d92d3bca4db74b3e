import { consume } from "./delivery/consumer.ts";
import { app } from "./http/app.ts";
import { ingest } from "./ingest.ts";
import { sweep } from "./sweep.ts";

export { AddressGate } from "./gate/address-gate.ts";
export { KeyGate } from "./gate/key-gate.ts";
export { Platform } from "./platform.ts";

export default {
  fetch: app.fetch,
  queue: (batch, env) =>
    batch.queue.endsWith("deliveries") ? consume(batch, env) : ingest(batch, env),
  scheduled: (controller, env) => sweep(env, controller.scheduledTime),
} satisfies ExportedHandler<Env>;
