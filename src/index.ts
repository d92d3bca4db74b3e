import { consume } from "./delivery/consumer.ts";
import { isWake } from "./delivery/wake.ts";
import { consumeEmails } from "./email/send.ts";
import { app } from "./http/app.ts";
import { sweep } from "./sweep.ts";

export { Platform } from "./platform/entrypoint.ts";
export { AddressGate } from "./rate-limit/address-gate.ts";
export { KeyGate } from "./rate-limit/key-gate.ts";

export default {
  fetch: app.fetch,
  async queue({ messages }, env, ctx) {
    const wakes = messages.filter((message) => isWake(message, env));
    if (wakes.length > 0) await consume(wakes, env, ctx);
    await consumeEmails(messages, env);
  },
  scheduled: (controller, env) => sweep(env, controller.scheduledTime),
} satisfies ExportedHandler<Env>;
