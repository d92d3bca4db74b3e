import { sql } from "drizzle-orm";
import { TELL_AFTER_MS } from "../contract/limits.ts";
import { deliveries, type EmailKind, type LastAttempt, subscriptions } from "../db/schema.ts";
import { typesToReport } from "../history/rejections.ts";

/** The columns from which e-mails are derived. */
export const FACTS = {
  events: subscriptions.events,
  failingSince: subscriptions.failingSince,
  circuits: subscriptions.circuits,
  disabledAt: subscriptions.disabledAt,
  disabledByFailures: subscriptions.disabledByFailures,
  pendingExhaustedAt: subscriptions.pendingExhaustedAt,
  lastAttempt: subscriptions.lastAttempt,
  hasPending: sql`EXISTS (SELECT 1 FROM ${deliveries}
    WHERE ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending')`
    .mapWith(Boolean)
    .as("has_pending"),
};

type FactColumns = Exclude<keyof typeof FACTS, "hasPending">;
/** The facts about a subscription. */
export type Facts = Pick<typeof subscriptions.$inferSelect, FactColumns> & {
  /** Whether it has a pending delivery. Without one, its failures are over, even if no success followed. */
  hasPending: boolean;
};

/**
 * Returns the start of the state that an e-mail of this kind reports, in Unix milliseconds; null if the state is over.
 */
export function trueSince(kind: EmailKind, facts: Facts, now: number): number | null {
  const { failingSince, disabledAt, lastAttempt } = facts;
  if (kind === "disabled") return facts.disabledByFailures ? disabledAt : null;
  if (disabledAt !== null) return null;
  switch (kind) {
    case "failing": {
      const isLasting = failingSince !== null && now - failingSince >= TELL_AFTER_MS;
      return isLasting && facts.hasPending ? failingSince : null;
    }
    case "rejecting": {
      const starts = typesToReport(facts, now).map(({ since }) => since);
      // The latest start counts, so that another rejected type is news.
      return starts.length > 0 ? Math.max(...starts) : null;
    }
    case "overflow":
      return facts.pendingExhaustedAt;
    case "recovered":
      return failingSince === null && lastAttempt && hasSucceeded(lastAttempt)
        ? lastAttempt.at
        : null;
  }
}

function hasSucceeded({ outcome, status }: LastAttempt): boolean {
  return outcome === "answered" && status !== null && status >= 200 && status < 300;
}
