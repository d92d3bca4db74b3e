import {
  EMAIL_WAITS_SECONDS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  WORKSPACE_EMAILS_PER_DAY,
} from "../contract/limits.ts";
import { commit, type Database } from "../db/client.ts";
import { log, logError } from "../log.ts";
import { errorCode, sendEmail } from "./mail.ts";
import { describe, type Notice } from "./notice.ts";
import { type DueNotice, recordTurn, type Turn, takeDueNotices } from "./notices.ts";
import { composeNotice } from "./text.ts";

/** Recipients of one turn: six requests of an invocation may be in progress. */
export const RECIPIENTS_AT_ONCE = 5;

/**
 * Sends the notices that administrators are owed: in each sweep, a few e-mails of each workspace, until
 * `hasMore` returns false. An e-mail is sent twice only if a crash comes between sending and recording, its
 * workspace moves then, or no answer arrives.
 */
export async function sendNotices(
  db: Database,
  env: Env,
  now: number,
  hasMore: () => boolean = () => true,
): Promise<void> {
  const failures: unknown[] = [];
  for (const due of await takeDueNotices(db, now)) {
    // The others are due again once they are no longer taken.
    if (!hasMore()) break;
    const notice = await describe(db, env, due, now);
    const turn = notice ? await send(env, due, notice, now) : ended(due, now, false);
    await commit(db, recordTurn(due, turn, now)).catch((error) => failures.push(error));
  }
  if (failures.length > 0) throw failures[0];
}

/** A notice that nobody is left to be told of, or that is no longer true; one may be repeated later. */
function ended(due: DueNotice, now: number, isTrue: boolean): Turn {
  const isRepeated = isTrue && due.kind === "disabled" && due.reminders < REMINDERS_MAX;
  return {
    ...{ sent: [], failed: [] },
    next: isRepeated
      ? {
          dueAt: now + REMINDER_WAIT_MS,
          recipients: null,
          reminders: due.reminders + 1,
          tries: 0,
        }
      : { dueAt: null, recipients: [], tries: due.tries },
  };
}

/** Sends a notice to the next of its recipients. */
async function send(env: Env, due: DueNotice, notice: Notice, now: number): Promise<Turn> {
  const mayGet = WORKSPACE_EMAILS_PER_DAY - due.sentInADay;
  const recipients = [...new Set(due.recipients)].slice(0, Math.min(RECIPIENTS_AT_ONCE, mayGet));
  const message = composeNotice(notice, env);
  const errors = new Map<string, unknown>();
  await Promise.all(
    recipients.map((to) =>
      sendEmail(env, { to, ...message }).catch((error) => errors.set(to, error)),
    ),
  );
  const sent = recipients.filter((to) => !errors.has(to));
  const tries = due.tries + (errors.size > 0 ? 1 : 0);
  const waitSeconds = errors.size > 0 ? EMAIL_WAITS_SECONDS[tries - 1] : 0;
  // Without its recipients.
  const about = { kind: due.kind, webhookId: due.subscriptionId, tries };
  for (const _ of sent) log("notice_sent", about);
  for (const error of errors.values()) {
    const why = { ...about, code: errorCode(error) };
    if (waitSeconds === undefined) logError("notice_given_up", error, why);
    else logError("notice_failed", error, { ...why, waitSeconds });
  }
  const isOver = waitSeconds === undefined || due.recipients.every((to) => sent.includes(to));
  const next = isOver ? ended(due, now, true).next : { dueAt: now + 1000 * waitSeconds, tries };
  return { sent, failed: [...errors.keys()], next };
}
