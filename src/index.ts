import { consume } from "./dispatch/consumer.ts";
import { isEmail } from "./email/queue.ts";
import { consumeEmails } from "./email/send.ts";
import { app } from "./http/app.ts";
import { sweep } from "./sweep.ts";

export { Platform } from "./platform/entrypoint.ts";
export { AddressGate } from "./rate-limit/address-gate.ts";
export { KeyGate } from "./rate-limit/key-gate.ts";

export default {
  fetch: app.fetch,
  async queue({ messages }, env, ctx) {
    // The body tells which queue a message belongs to, because a deployment may rename its queues.
    const { emails = [], others = [] } = Object.groupBy(messages, (message) =>
      isEmail(message) ? "emails" : "others",
    );
    await Promise.all([consume(others, env, ctx), consumeEmails(emails, env)]);
  },
  scheduled: (controller, env) => sweep(env, controller.scheduledTime),
} satisfies ExportedHandler<Env>;
