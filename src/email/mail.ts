import { withTimeout } from "../primitives/timing.ts";

/** How long the mail service may take to respond. */
const EMAIL_TIMEOUT_MS = 10_000;

/**
 * Sends an e-mail to one recipient. An e-mail to several would fail for all of them if one is suppressed
 * (https://developers.cloudflare.com/email-service/concepts/suppressions/).
 *
 * @throws the error of the mail service, or a timeout, after which the e-mail may have been sent.
 */
export async function sendEmail(
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
export function errorCode(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^E_[A-Z_]{1,60}$/.test(code) ? code : null;
}
