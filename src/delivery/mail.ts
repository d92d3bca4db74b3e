import { EMAIL_PAUSE_MS, EMAIL_TIMEOUT_MS } from "../contract/limits.ts";

/** What has come of trying to send an e-mail. */
export type Sending =
  | { kind: "sent" }
  /** This recipient is not served, whatever we do. */
  | { kind: "refused"; error: unknown }
  /** No e-mail is taken for a while, whoever it is for. */
  | { kind: "paused"; error: unknown; waitMs: number }
  /** May succeed later, or once the deployment is set up. */
  | { kind: "failed"; error: unknown };

/**
 * Sends an e-mail to one recipient, for one that is suppressed fails all of a message
 * (https://developers.cloudflare.com/email-service/concepts/suppressions/). Without an answer in
 * time nobody knows whether it was sent: it counts as failed.
 */
export async function sendEmail(
  env: Env,
  message: { to: string; subject: string; text: string },
): Promise<Sending> {
  const timeout = Promise.withResolvers<never>();
  const timer = setTimeout(
    () => timeout.reject(new Error(`no answer in ${EMAIL_TIMEOUT_MS} ms`)),
    EMAIL_TIMEOUT_MS,
  );
  try {
    const sending = env.EMAIL.send({ from: env.EMAIL_FROM, ...message });
    await Promise.race([sending, timeout.promise]);
    return { kind: "sent" };
  } catch (error) {
    return judgeError(error);
  } finally {
    clearTimeout(timer);
  }
}

/** By the codes of https://developers.cloudflare.com/email-service/api/send-emails/workers-api/. */
function judgeError(error: unknown): Sending {
  switch (errorCode(error)) {
    case "E_RECIPIENT_SUPPRESSED":
      return { kind: "refused", error };
    case "E_RATE_LIMIT_EXCEEDED":
      return { kind: "paused", error, waitMs: EMAIL_PAUSE_MS.rate };
    case "E_DAILY_LIMIT_EXCEEDED":
      return { kind: "paused", error, waitMs: EMAIL_PAUSE_MS.daily };
    default:
      return { kind: "failed", error };
  }
}

/** The mail service's code for an error; null when it has none. */
export function errorCode(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^E_[A-Z_]{1,60}$/.test(code) ? code : null;
}
