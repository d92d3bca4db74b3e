import { env } from "cloudflare:workers";
import { announceProblems } from "../../src/email/announce.ts";
import type { EmailMessage } from "../../src/email/queue.ts";
import { consumeEmails } from "../../src/email/send.ts";
import { db, WORKSPACE_DB } from "./placement.ts";

export interface Email {
  from: string;
  to: string;
  subject: string;
  text: string;
}

interface Held {
  body: EmailMessage;
  attempts: number;
  dueAt: number;
}

/** The batch size of the consumer in `wrangler.toml`. */
const BATCH_MAX = 5;

/**
 * The deployment with a mail service and a queue of e-mails that a test controls.
 *
 * @param fails the error code that sending an e-mail fails with; `true` for an error without a code.
 */
export function mailbox(
  fails: (email: Email) => string | boolean | Promise<string | boolean> = () => false,
) {
  const sent: Email[] = [];
  const tried: Email[] = [];
  const held: Held[] = [];
  const send = async (email: Email) => {
    tried.push(email);
    const code = await fails(email);
    if (code) {
      const error = new Error(`the mail service does not serve ${email.to}`);
      throw typeof code === "string" ? Object.assign(error, { code }) : error;
    }
    sent.push(email);
  };
  const sendBatch = async (messages: MessageSendRequest<EmailMessage>[]) => {
    for (const { body } of messages) held.push({ body, attempts: 0, dueAt: 0 });
  };
  const bindings: Env = {
    ...env,
    EMAIL: { send } as unknown as SendEmail,
    EMAILS: { sendBatch } as unknown as Queue,
  };

  /** Passes the messages that are due to their consumer, until none is. */
  async function consumeAt(now: number): Promise<void> {
    for (;;) {
      const due = held.filter(({ dueAt }) => dueAt <= now).slice(0, BATCH_MAX);
      if (due.length === 0) return;
      for (const one of due) held.splice(held.indexOf(one), 1);
      const ended = new Set<Held>();
      const messages = due.map((one) => {
        const end = (options?: QueueRetryOptions) => {
          ended.add(one);
          if (!options) return;
          const dueAt = now + (options.delaySeconds ?? 0) * 1000;
          held.push({ body: one.body, attempts: one.attempts + 1, dueAt });
        };
        return {
          body: one.body,
          attempts: one.attempts + 1,
          ack: () => end(),
          retry: (options: QueueRetryOptions = {}) => end(options),
        } as unknown as Message<EmailMessage>;
      });
      await consumeEmails(messages, bindings, now);
      if (ended.size < due.length)
        throw new Error("a message was neither acknowledged nor retried");
    }
  }

  /** A sweep, and what the queue does then. */
  async function sweepAt(now: number, hasMore?: () => boolean): Promise<void> {
    await announceProblems(db, bindings, now, hasMore);
    await consumeAt(now);
  }
  return { env: bindings, sent, tried, held, sweepAt, consumeAt };
}

/** Deletes all facts to announce, and the lock of a run. */
export async function clearMail(): Promise<void> {
  await WORKSPACE_DB.exec(
    "UPDATE subscriptions SET deleted_at = 1, failing_since = NULL WHERE deleted_at IS NULL; DELETE FROM sweep_positions",
  );
}
