import { z } from "@hono/zod-openapi";
import { EMAIL_KINDS } from "../db/schema.ts";
import { chunk } from "../primitives/chunk.ts";

/**
 * A message of the queue `webhook-emails`: one e-mail to one administrator. It has no text, because the e-mail is
 * composed when it is sent, from the facts at that time.
 */
const EmailMessage = z.strictObject({
  workspaceId: z.string(),
  kind: z.enum(EMAIL_KINDS),
  /** The subscriptions that the e-mail is about, all with the same host. */
  subscriptionIds: z.array(z.string()).min(1),
  isReminder: z.boolean(),
  /** The e-mail address of the administrator. */
  to: z.string(),
});
export type EmailMessage = z.infer<typeof EmailMessage>;

/** Whether a message is an e-mail. The name of its queue does not show that, because a deployment may rename queues. */
export function isEmail(message: Message): message is Message<EmailMessage> {
  return EmailMessage.safeParse(message.body).success;
}

const MESSAGES_AT_ONCE = 100;
/** Maximum bytes of a batch, below the limit of 256 KB (https://developers.cloudflare.com/queues/platform/limits/). */
const BATCH_MAX_BYTES = 200_000;

/** Passes e-mails to the queue. @throws the error of the queue if it rejects some; it may have accepted others. */
export async function enqueueEmails(env: Env, messages: EmailMessage[]): Promise<void> {
  const batches = chunk(messages, MESSAGES_AT_ONCE).flatMap((some) =>
    chunk(some, BATCH_MAX_BYTES, (message) => JSON.stringify(message).length),
  );
  for (const batch of batches) await env.EMAILS.sendBatch(batch.map((body) => ({ body })));
}
