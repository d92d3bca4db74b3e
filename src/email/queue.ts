import { z } from "@hono/zod-openapi";
import { chunk } from "../chunk.ts";
import { EMAIL_KINDS } from "../db/schema.ts";

/**
 * A message of the queue `webhook-emails`: one e-mail to one administrator. It holds no text: the e-mail is
 * written when it is sent, and says what is true then.
 */
const EmailMessage = z.strictObject({
  workspaceId: z.string(),
  kind: z.enum(EMAIL_KINDS),
  /** What it is about: subscriptions to one host. */
  subscriptionIds: z.array(z.string()).min(1),
  isReminder: z.boolean(),
  /** The address of the administrator. */
  to: z.string(),
});
export type EmailMessage = z.infer<typeof EmailMessage>;

/** Whether a message is an e-mail, whatever its queue is called: a deployment may rename it. */
export function isEmail(message: Message): message is Message<EmailMessage> {
  return EmailMessage.safeParse(message.body).success;
}

const MESSAGES_AT_ONCE = 100;
/** A batch may have 256 KB (https://developers.cloudflare.com/queues/platform/limits/). */
const BATCH_MAX_BYTES = 200_000;

/** Passes e-mails to the queue. @throws the queue's error if it refuses some; it may have taken others. */
export async function enqueueEmails(env: Env, messages: EmailMessage[]): Promise<void> {
  const batches = chunk(messages, MESSAGES_AT_ONCE).flatMap((some) =>
    chunk(some, BATCH_MAX_BYTES, (message) => JSON.stringify(message).length),
  );
  for (const batch of batches) await env.EMAILS.sendBatch(batch.map((body) => ({ body })));
}
