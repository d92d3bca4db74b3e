import { sql } from "drizzle-orm";
import { MINUTE_MS } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { commit, type Database, prepared, query } from "../db/client.ts";
import { sweepPositions } from "../db/schema.ts";
import {
  CANDIDATES_MAX,
  type Candidate,
  chooseAnnouncements,
  recordAnnouncements,
  selectCandidates,
} from "./announcements.ts";
import { enqueueEmails } from "./queue.ts";

/*
 * E-mails to administrators, in the order of the files:
 *
 * 1. announce.ts, which the scheduled job calls, reads the subscriptions that may need an e-mail.
 * 2. announcements.ts decides which e-mails are due, from the facts of facts.ts, and records them.
 * 3. queue.ts passes them to a queue, which retries them.
 * 4. send.ts consumes the queue. For each e-mail, notification.ts reads the facts again, and text.ts composes the text.
 */

/** How long the lock of a run that has died prevents later runs from announcing. */
export const ANNOUNCING_MAX_MS = 2 * MINUTE_MS;

/** The lock, whose position is the time when the run that has it began. */
const PART = "announcing";
const BEGAN = sql`${sql.placeholder("began")}`;
const position = sql`CAST(${sweepPositions.position} AS INTEGER)`;

/**
 * Takes the lock, unless another run of the scheduled job has it. A future time was written before a clock was set
 * back, and is ignored.
 */
const lock = prepared(
  qb
    .insert(sweepPositions)
    .values({ part: PART, position: BEGAN })
    .onConflictDoUpdate({
      target: sweepPositions.part,
      set: { position: BEGAN },
      setWhere: sql`NOT (${position} > ${BEGAN} - ${ANNOUNCING_MAX_MS} AND ${position} <= ${BEGAN})`,
    })
    .returning(),
);

const unlock = prepared(
  qb
    .update(sweepPositions)
    .set({ position: "0" })
    .where(sql`${sweepPositions.part} = ${PART} AND ${sweepPositions.position} = ${BEGAN}`),
);

/**
 * Notifies administrators of problems of their subscriptions: passes an e-mail for each administrator to the queue, and
 * then records that. If it dies in between, the next run passes the same e-mails again (at-least-once delivery). A
 * duplicate e-mail is a nuisance, but a missing one may cost events. For the same reason, an e-mail whose message is
 * delivered twice is sent twice.
 *
 * @param db the database of the subscriptions.
 * @param hasMore whether to continue with another workspace. The next run continues where this one stops.
 * @throws the first error of the queue or the database, after all other workspaces.
 */
export async function announceProblems(
  db: Database,
  env: Env,
  now: number,
  hasMore: () => boolean = () => true,
): Promise<void> {
  const began = String(now);
  const { locked, candidates } = await commit(db, {
    locked: lock({ began }),
    candidates: selectCandidates({ after: "", now }),
  });
  if (locked.length === 0) return;
  const failures: unknown[] = [];
  let page = candidates;
  for (;;) {
    for (const workspace of wholeWorkspaces(page)) {
      if (!hasMore()) break;
      await announceTo(db, env, workspace, now).catch((error) => failures.push(error));
    }
    const after = wholeWorkspaces(page).at(-1)?.[0]?.workspaceId;
    if (page.length < CANDIDATES_MAX || after === undefined || !hasMore()) break;
    page = await query(db, selectCandidates({ after, now }));
  }
  await commit(db, unlock({ began }));
  if (failures.length > 0) throw failures[0];
}

/**
 * Groups candidates by workspace. The last workspace of a full page may have more of them, and begins the next page.
 */
function wholeWorkspaces(page: Candidate[]): Candidate[][] {
  const workspaces = [...Map.groupBy(page, ({ workspaceId }) => workspaceId).values()];
  return page.length < CANDIDATES_MAX ? workspaces : workspaces.slice(0, -1);
}

async function announceTo(
  db: Database,
  env: Env,
  candidates: Candidate[],
  now: number,
): Promise<void> {
  const announcements = chooseAnnouncements(candidates, now);
  if (announcements.length === 0) return;
  const messages = announcements.flatMap(
    ({ workspaceId, kind, isReminder, recipients, entries }) => {
      const subscriptionIds = entries.map(({ subscriptionId }) => subscriptionId);
      return recipients.map((to) => ({ workspaceId, kind, subscriptionIds, isReminder, to }));
    },
  );
  await enqueueEmails(env, messages);
  await commit(db, recordAnnouncements(announcements));
}
