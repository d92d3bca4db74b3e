import type { Post } from "./invariants.ts";
import type { Store } from "./store.ts";
import { Violation } from "./world.ts";

/** How long ago the facts of an e-mail may have been read, and how long an outcome may take to be recorded. */
const SLACK_MS = 5 * 60_000;
const DAY_MS = 24 * 3_600_000;

/** An e-mail to administrators. */
export interface Email {
  subject: string;
  text: string;
}

/** The state of a subscription that an e-mail is about. */
interface About {
  id: string;
  failingSince: number | null;
  rejections: string;
}

/** When an e-mail is sent, what it says of its subscriptions is true. */
export function checkEmail(store: Store, { subject, text }: Email, posts: Post[]): void {
  const ids = new Set(text.match(/whk_\d+/g));
  if (ids.size === 0) throw new Violation(`an e-mail names no subscription: ${subject}`);
  const sql =
    "SELECT id, failing_since AS failingSince, rejections FROM subscriptions WHERE id = ?";
  for (const id of ids) {
    store.world.note(`an e-mail is sent about ${id}: ${subject}`);
    const [about] = store.rows<About>(sql, id);
    if (!about) throw new Violation(`an e-mail is about ${id}, which does not exist`);
    const own = posts.filter(({ subscriptionId }) => subscriptionId === id);
    if (/en échec/.test(subject)) checkFailing(store, about);
    else if (/refuse certains/.test(subject)) checkRejecting(store, about, own);
  }
}

/** It has failed for a day. */
function checkFailing({ world }: Store, { id, failingSince }: About): void {
  // It has just recovered.
  if (failingSince === null) return;
  const clocksMs = 2 * world.odds.clockJumpMs;
  if (world.now - failingSince < DAY_MS - clocksMs - SLACK_MS)
    throw new Violation(`an e-mail says too early that ${id} fails`);
}

/** An event of another type was accepted after one of this type was rejected. */
function checkRejecting(store: Store, { id, rejections }: About, posts: Post[]): void {
  const since = Object.entries(JSON.parse(rejections) as Record<string, { since: number }>);
  const accepted = posts.filter(({ acknowledged }) => acknowledged);
  const isTrue = since.some(([type, rejection]) =>
    accepted.some(
      ({ eventId, endedAt }) =>
        (endedAt ?? 0) > rejection.since - SLACK_MS &&
        store.rows("SELECT 1 FROM events WHERE id = ? AND type <> ?", eventId, type).length > 0,
    ),
  );
  if (since.length > 0 && !isTrue)
    throw new Violation(`an e-mail says that ${id} accepts some types, and it accepted nothing`);
}
