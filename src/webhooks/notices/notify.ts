import {
  EMAIL_WAITS_SECONDS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  WORKSPACE_EMAILS_PER_DAY,
} from "../../contract/limits.ts";
import { commit, type Database, type Statements } from "../../db/client.ts";
import { hasOneDatabase } from "../../db/databases.ts";
import { isMoving } from "../../db/errors.ts";
import { findPosition, updatePosition } from "../../db/sweep-positions.ts";
import { log, logError } from "../../log.ts";
import { findPlacement } from "../../workspaces/placement.ts";
import { errorCode, type Sending, sendEmail } from "./mail.ts";
import { describe, type Notice } from "./notice.ts";
import { type DueNotice, recordTurn, type Turn, takeDueNotices } from "./notices.ts";
import { composeNotice } from "./text.ts";

/** The sweep position that stores until when sending is paused. */
const PAUSE = "emails";
/** Recipients of one turn: six requests of an invocation may be in progress. */
export const RECIPIENTS_AT_ONCE = 5;

/**
 * Sends the notices that administrators are owed: in each sweep, a few e-mails of each workspace, until
 * `hasMore` returns false or the mail service accepts no more. An e-mail is sent twice only if a crash
 * comes between sending and recording, or no answer arrives.
 */
export async function sendNotices(
  db: Database,
  env: Env,
  now: number,
  hasMore: () => boolean = () => true,
): Promise<void> {
  if (now < Number(await findPosition(db, PAUSE))) return;
  const failures: unknown[] = [];
  for (const due of await takeDueNotices(db, now)) {
    // The others are due again once they are no longer taken.
    if (!hasMore()) break;
    const notice = await describe(db, env, due, now);
    const { turn, pauseMs } = notice
      ? await send(env, due, notice, now)
      : { turn: ended(due, now, false), pauseMs: 0 };
    await record(db, env, due, recordTurn(due, turn, now)).catch((error) => failures.push(error));
    if (pauseMs === 0) continue;
    await updatePosition(db, PAUSE, String(now + pauseMs));
    break;
  }
  if (failures.length > 0) throw failures[0];
}

/** Records a turn; if the workspace has moved since, in its new database. */
async function record(
  db: Database,
  env: Env,
  { workspaceId }: DueNotice,
  turn: Statements<number>,
): Promise<void> {
  try {
    if ((await commit(db, turn)) > 0 || hasOneDatabase(env)) return;
  } catch (error) {
    if (!isMoving(error)) throw error;
  }
  const placement = await findPlacement(env, workspaceId);
  await commit(placement.db, turn);
}

/** A notice that nobody is left to be told of, or that is no longer true; one may be repeated later. */
function ended(due: DueNotice, now: number, isTrue: boolean): Turn {
  const isRepeated = isTrue && due.kind === "disabled" && due.reminders < REMINDERS_MAX;
  return {
    ...{ done: [], failed: [], sent: 0 },
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

/** Sends a notice to the next of its recipients. @returns also how long to send nothing to anybody. */
async function send(
  env: Env,
  due: DueNotice,
  notice: Notice,
  now: number,
): Promise<{ turn: Turn; pauseMs: number }> {
  const mayGet = WORKSPACE_EMAILS_PER_DAY - due.sentInADay;
  const recipients = [...new Set(due.recipients)].slice(0, Math.min(RECIPIENTS_AT_ONCE, mayGet));
  const message = composeNotice(notice, env);
  const sendings = await Promise.all(
    recipients.map(async (to) => ({ to, ...(await sendEmail(env, { to, ...message })) })),
  );
  const are = (...kinds: Sending["kind"][]) =>
    sendings.flatMap(({ to, kind }) => (kinds.includes(kind) ? to : []));
  const [done, failed, sent] = [are("sent", "refused"), are("failed"), are("sent").length];
  const tries = due.tries + (failed.length > 0 ? 1 : 0);
  const waitSeconds = failed.length > 0 ? EMAIL_WAITS_SECONDS[tries - 1] : 0;
  const isGivenUp = waitSeconds === undefined;
  for (const sending of sendings) report(due, sending, tries, waitSeconds);
  const isOver = isGivenUp || due.recipients.every((to) => done.includes(to));
  const next = isOver
    ? ended(due, now, true).next
    : { dueAt: now + 1000 * (waitSeconds ?? 0), tries };
  const pauseMs = Math.max(
    0,
    ...sendings.map((sending) => (sending.kind === "paused" ? sending.waitMs : 0)),
  );
  return { turn: { done, failed, sent, next }, pauseMs };
}

/** Logs what became of an e-mail, without its recipient. */
function report(
  { kind, subscriptionId: webhookId }: DueNotice,
  sending: Sending,
  tries: number,
  waitSeconds: number | undefined,
): void {
  const about = { kind, webhookId, tries };
  if (sending.kind === "sent") {
    log("notice_sent", about);
    return;
  }
  const { error } = sending;
  const why = { ...about, code: errorCode(error) };
  if (sending.kind === "paused")
    logError("notices_paused", error, { ...why, waitSeconds: sending.waitMs / 1000 });
  else if (sending.kind === "refused") logError("notice_refused", error, why);
  else if (waitSeconds === undefined) logError("notice_given_up", error, why);
  else logError("notice_failed", error, { ...why, waitSeconds });
}
