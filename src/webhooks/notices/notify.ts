import { EMAIL_WAITS_SECONDS } from "../../contract/limits.ts";
import { commit, type Database, type Statements } from "../../db/client.ts";
import { hasOneDatabase } from "../../db/databases.ts";
import { isMoving } from "../../db/errors.ts";
import { findPosition, updatePosition } from "../../db/sweep-positions.ts";
import { log, logError } from "../../log.ts";
import { findPlacement, openToWrite } from "../../workspaces/placement.ts";
import { errorCode, sendEmail } from "./mail.ts";
import {
  type DueEmail,
  giveBackEmails,
  postponeEmail,
  settleEmail,
  takeDueEmails,
} from "./notices.ts";
import { composeNotice } from "./text.ts";

/** The sweep position that stores until when sending is paused. */
const PAUSE = "emails";

/**
 * Sends the e-mails owed to administrators until none is due, `hasTime` returns false, or the mail
 * service accepts no more. One is sent twice only if a crash comes between sending and recording, or no
 * answer arrives.
 */
export async function sendNotices(
  db: Database,
  env: Env,
  now: number,
  hasTime: () => boolean = () => true,
): Promise<void> {
  if (now < Number(await findPosition(db, PAUSE))) return;
  const taken = await takeDueEmails(db, now);
  const unrecorded: Unrecorded[] = [];
  for (const [i, email] of taken.entries()) {
    const pauseMs = hasTime()
      ? await trySending(db, env, email, now).catch((error) => {
          if (!(error instanceof Unrecorded)) throw error;
          unrecorded.push(error);
          return null;
        })
      : 0;
    if (pauseMs === null) continue;
    await giveBackEmails(db, taken.slice(i), now);
    if (pauseMs > 0) await updatePosition(db, PAUSE, String(now + pauseMs));
    break;
  }
  if (unrecorded[0]) throw unrecorded[0].cause;
}

/** The outcome of an e-mail could not be recorded in the database that its workspace lives in. */
class Unrecorded extends Error {}

/** Records the outcome of an e-mail; if its workspace has moved since, in its new database. */
async function recordOutcome(
  db: Database,
  env: Env,
  { workspaceId }: DueEmail,
  outcome: Statements<number>,
): Promise<void> {
  try {
    if ((await commit(db, outcome)) > 0 || hasOneDatabase(env)) return;
  } catch (error) {
    if (!isMoving(error)) throw error;
  }
  try {
    const placement = await openToWrite(env, () => findPlacement(env, workspaceId));
    await commit(placement.db, outcome);
  } catch (cause) {
    throw new Unrecorded("", { cause });
  }
}

const LONGEST_WAIT_SECONDS = EMAIL_WAITS_SECONDS.at(-1);
const TRIED_FOR_MS = 1000 * EMAIL_WAITS_SECONDS.reduce((sum, seconds) => sum + seconds, 0);

/**
 * How long to wait after a try that failed; undefined if it was the last. A sweep that crashed may have
 * counted a try that it did not make: the retries must not end early for that.
 */
function waitAfter({ tries, addressedAt }: DueEmail, now: number): number | undefined {
  const isEarly = now - addressedAt < TRIED_FOR_MS;
  return EMAIL_WAITS_SECONDS[tries - 1] ?? (isEarly ? LONGEST_WAIT_SECONDS : undefined);
}

/** One try. Returns how long to pause in milliseconds if the try must not count, else null. */
async function trySending(
  db: Database,
  env: Env,
  email: DueEmail,
  now: number,
): Promise<number | null> {
  const { noticeId, kind, subscriptionId: webhookId, tries, recipient } = email;
  const record = (outcome: Statements<number>) => recordOutcome(db, env, email, outcome);
  const about = { noticeId, kind, webhookId, tries };
  const sending = await sendEmail(env, { to: recipient, ...composeNotice(email) });
  if (sending.kind === "sent") {
    await record(settleEmail(email, "sent", now));
    log("notice_sent", about);
    return null;
  }
  const { error } = sending;
  const why = { ...about, code: errorCode(error) };
  if (sending.kind === "paused") {
    logError("notices_paused", error, { ...why, waitSeconds: sending.waitMs / 1000 });
    return sending.waitMs;
  }
  const waitSeconds = waitAfter(email, now);
  if (sending.kind === "refused") {
    await record(settleEmail(email, "refused", now));
    logError("notice_refused", error, why);
  } else if (waitSeconds === undefined) {
    await record(settleEmail(email, "given_up", now));
    logError("notice_given_up", error, why);
  } else {
    await record(postponeEmail(email, now + waitSeconds * 1000));
    logError("notice_failed", error, { ...why, waitSeconds });
  }
  return null;
}
