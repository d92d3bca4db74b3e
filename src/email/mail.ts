import { withTimeout } from "../timing.ts";

/** How long the mail service may take to answer. */
const EMAIL_TIMEOUT_MS = 10_000;

/**
 * Sends an e-mail to one recipient: if a message has several, one suppressed recipient fails it for
 * all (https://developers.cloudflare.com/email-service/concepts/suppressions/).
 *
 * @throws what the mail service has thrown; if no answer arrives in time, it may have been sent all the same.
 */
export async function sendEmail(
  env: Env,
  message: { to: string; subject: string; text: string },
): Promise<void> {
  const { EMAIL_FROM: email, PORTAL_NAME: name } = env;
  const sending = env.EMAIL.send({ from: name === "" ? email : { email, name }, ...message });
  await withTimeout(EMAIL_TIMEOUT_MS, sending, () => {
    throw new Error(`no answer in ${EMAIL_TIMEOUT_MS} ms`);
  });
}

/** https://developers.cloudflare.com/email-service/api/send-emails/workers-api/#error-codes; null if it has none. */
export function errorCode(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^E_[A-Z_]{1,60}$/.test(code) ? code : null;
}
