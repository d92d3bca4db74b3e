import { EMAIL_WAITS_SECONDS } from "../contract/limits.ts";
import { log, logError } from "../log.ts";
import { chunk } from "../primitives/chunk.ts";
import { withTimeout } from "../primitives/timing.ts";
import { findPlacement } from "../workspaces/placement.ts";
import { addressOf } from "./announcements.ts";
import { readNotification } from "./notification.ts";
import { type EmailMessage, isEmail } from "./queue.ts";
import { composeEmail } from "./text.ts";

/** How long the mail service may take to respond. */
const EMAIL_TIMEOUT_MS = 10_000;

/** Maximum e-mails that are sent at once, because an invocation may have six requests in flight. */
const SENT_AT_ONCE = 5;

/**
 * Consumes the queue `webhook-emails`, and ignores messages that are not e-mails. An e-mail is not sent if its facts are
 * no longer true, or if its recipient is no longer an administrator. After a failure, it is retried with the delays of
 * `EMAIL_WAITS_SECONDS`, and given up after the last one.
 */
export async function consumeEmails(
  messages: readonly Message[],
  env: Env,
  now = Date.now(),
): Promise<void> {
  const byAnnouncement = Map.groupBy(messages.filter(isEmail), ({ body }) =>
    JSON.stringify({ ...body, to: "" }),
  );
  for (const group of byAnnouncement.values())
    for (const some of chunk(group, SENT_AT_ONCE)) await sendToEach(some, env, now);
}

/** Sends one announcement to several administrators. */
async function sendToEach(messages: Message<EmailMessage>[], env: Env, now: number): Promise<void> {
  const [first] = messages;
  if (!first) return;
  let described: Awaited<ReturnType<typeof readNotification>>;
  try {
    const { db } = await findPlacement(env, first.body.workspaceId);
    described = await readNotification(db, env, first.body, now);
  } catch (error) {
    for (const message of messages) retryLater(message, error);
    return;
  }
  const { notification, administrators = [] } = described ?? {};
  await Promise.all(
    messages.map(async (message) => {
      const { to } = message.body;
      const administrator = administrators.find((one) => addressOf(one) === to);
      if (!notification || !administrator) return message.ack();
      const language = typeof administrator === "string" ? "fr" : administrator.language;
      try {
        await sendEmail(env, { to, ...composeEmail(notification, language, env) });
        log("email_sent", fieldsOf(message));
        message.ack();
      } catch (error) {
        retryLater(message, error);
      }
    }),
  );
}

function retryLater(message: Message<EmailMessage>, error: unknown): void {
  const fields = { ...fieldsOf(message), code: errorCode(error) };
  const delaySeconds = EMAIL_WAITS_SECONDS[message.attempts - 1];
  if (delaySeconds === undefined) {
    logError("email_given_up", error, fields);
    message.ack();
  } else {
    logError("email_failed", error, { ...fields, delaySeconds });
    message.retry({ delaySeconds });
  }
}

/** Returns the fields of a log line about an e-mail, without its recipient. */
function fieldsOf({ body, attempts }: Message<EmailMessage>) {
  const { workspaceId, kind, subscriptionIds } = body;
  return {
    workspaceId,
    kind,
    webhookId: subscriptionIds[0],
    subscriptions: subscriptionIds.length,
    attempts,
  };
}

/**
 * Sends an e-mail to one recipient. An e-mail to several would fail for all of them if one is suppressed
 * (https://developers.cloudflare.com/email-service/concepts/suppressions/).
 *
 * @throws the error of the mail service, or a timeout, after which the e-mail may have been sent.
 */
async function sendEmail(
  env: Env,
  message: { to: string; subject: string; text: string },
): Promise<void> {
  const { EMAIL_FROM: email, PORTAL_NAME: name } = env;
  const sending = env.EMAIL.send({ from: name === "" ? email : { email, name }, ...message });
  await withTimeout(EMAIL_TIMEOUT_MS, sending, () => {
    throw new Error(`no response within ${EMAIL_TIMEOUT_MS} ms`);
  });
}

/**
 * Returns the code of an error of the mail service; null if it has none
 * (https://developers.cloudflare.com/email-service/api/send-emails/workers-api/#error-codes).
 */
function errorCode(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^E_[A-Z_]{1,60}$/.test(code) ? code : null;
}
