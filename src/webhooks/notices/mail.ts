import { HOUR_MS } from "../../contract/time.ts";
import { withTimeout } from "../../timing.ts";

/** How long the mail service may take to answer. */
const EMAIL_TIMEOUT_MS = 10_000;
/** How long to send no e-mail after the mail service has reported its rate or daily limit. */
const EMAIL_PAUSE_MS = { rate: 300_000, daily: HOUR_MS } as const;

export type Sending =
  | { kind: "sent" }
  /** The service will never deliver to this recipient. */
  | { kind: "refused"; error: unknown }
  /** The service accepts no e-mail for a while, whoever it is to. */
  | { kind: "paused"; error: unknown; waitMs: number }
  /** May succeed later, or once the deployment is configured. */
  | { kind: "failed"; error: unknown };

/**
 * Sends an e-mail to one recipient: if a message has several, one suppressed recipient fails it for
 * all (https://developers.cloudflare.com/email-service/concepts/suppressions/). If no answer
 * arrives in time, it may or may not have been sent; it counts as failed.
 */
export async function sendEmail(
  env: Env,
  message: { to: string; subject: string; text: string },
): Promise<Sending> {
  try {
    const { EMAIL_FROM: email, PORTAL_NAME: name } = env;
    const sending = env.EMAIL.send({ from: name === "" ? email : { email, name }, ...message });
    await withTimeout(EMAIL_TIMEOUT_MS, sending, () => {
      throw new Error(`no answer in ${EMAIL_TIMEOUT_MS} ms`);
    });
    return { kind: "sent" };
  } catch (error) {
    return judgeError(error);
  }
}

/** https://developers.cloudflare.com/email-service/api/send-emails/workers-api/#error-codes */
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

/** The mail service's error code; null if the error has none. */
export function errorCode(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" && /^E_[A-Z_]{1,60}$/.test(code) ? code : null;
}
