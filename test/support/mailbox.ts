import { env } from "cloudflare:workers";
import { notices } from "../../src/db/schema.ts";
import { db } from "./deliveries.ts";
import { WORKSPACE_DB } from "./placement.ts";

export interface Email {
  from: string;
  to: string;
  subject: string;
  text: string;
}

/**
 * An e-mail binding that keeps what it is given. `fails` returns the error code that a send fails with;
 * `true` for an error without a code.
 */
export function mailbox(
  fails: (email: Email) => string | boolean | Promise<string | boolean> = () => false,
) {
  const sent: Email[] = [];
  const tried: Email[] = [];
  const send = async (email: Email) => {
    tried.push(email);
    const code = await fails(email);
    if (code) {
      const error = new Error(`the mail service does not serve ${email.to}`);
      throw typeof code === "string" ? Object.assign(error, { code }) : error;
    }
    await env.EMAIL.send(email);
    sent.push(email);
  };
  const bindings: Env = { ...env, EMAIL: { send } as unknown as SendEmail };
  return { env: bindings, sent, tried };
}

/** Clears what is owed, and the mail service's pause. */
export async function clearMail(): Promise<void> {
  await db.update(notices).set({ dueAt: null });
  await WORKSPACE_DB.exec("DELETE FROM sweep_positions");
}
