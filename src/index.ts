import { consume } from "./delivery/consumer.ts";
import { isWake } from "./delivery/wake.ts";
import { app } from "./http/app.ts";
import { sweep } from "./sweep.ts";

export { Platform } from "./platform/entrypoint.ts";
export { AddressGate } from "./rate-limit/address-gate.ts";
export { KeyGate } from "./rate-limit/key-gate.ts";

export default {
  fetch: app.fetch,
  queue: ({ messages }, env, ctx) =>
    consume(
      messages.filter((message) => isWake(message, env)),
      env,
      ctx,
    ),
  scheduled: (controller, env) => sweep(env, controller.scheduledTime),
} satisfies ExportedHandler<Env>;
