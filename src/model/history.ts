import { and, desc, eq, gte, isNull, lt, sql } from "drizzle-orm";
import { UnknownInput } from "../contract/input-error.ts";
import { DELIVERIES_LOOKED_THROUGH } from "../contract/limits.ts";
import type { WebhookEvent } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { select } from "../db/builder.ts";
import { commit, type Database, inOrder, rows, type Statements } from "../db/client.ts";
import { attempts, type DeliveryState, deliveries, events, subscriptions } from "../db/schema.ts";
import { type AttemptView, isoTimeOrNull, unknownWebhook } from "./health.ts";
import { type Listing, type PageRequest, toListing } from "./page.ts";

/** A delivery, as the Platform door tells it. */
export interface DeliveryView {
  eventId: string;
  type: WebhookEvent;
  createdAt: string;
  state: DeliveryState;
  /** Attempts since it was owed, or owed again. */
  attempts: number;
  /** When a pending one is due. */
  dueAt: string | null;
  settledAt: string | null;
  lastAttempt: AttemptView | null;
}

/** The same with all that is kept of it. */
export interface DeliveryDetails extends DeliveryView {
  /** Every attempt that failed, the first one first. */
  failedAttempts: AttemptView[];
  /** The exact text that is signed and posted. */
  body: string;
}

/** What narrows a list of deliveries. */
export interface DeliveryFilter {
  state?: DeliveryState | null | undefined;
  type?: WebhookEvent | null | undefined;
}

const SHOWN = {
  eventId: deliveries.eventId,
  type: events.type,
  createdAt: events.createdAt,
  state: deliveries.state,
  attempts: deliveries.attempts,
  dueAt: deliveries.dueAt,
  settledAt: deliveries.settledAt,
  lastAt: deliveries.lastAt,
  lastOutcome: deliveries.lastOutcome,
  lastStatus: deliveries.lastStatus,
  lastDurationMs: deliveries.lastDurationMs,
};

type DeliveryRow = Omit<
  typeof deliveries.$inferSelect,
  "subscriptionId" | "workspaceId" | "generation"
> &
  Pick<typeof events.$inferSelect, "type" | "createdAt">;

const IS_ITS_EVENT = sql`${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}`;

/**
 * One page of a subscription's deliveries, newest first. Unfiltered, it reads the rows that it shows
 * and one more, each with its event. A filter reads what it leaves out, too, up to a bound: a page may
 * then be short, or empty, and have a next one.
 *
 * @throws UnknownInput when there is no such subscription.
 */
export async function listDeliveries(
  db: Database,
  webhookId: string,
  { state, type }: DeliveryFilter,
  { limit, after }: PageRequest,
): Promise<Listing<DeliveryView>> {
  const { subscriptionId, eventId } = deliveries;
  const isBehind = and(eq(subscriptionId, webhookId), after ? lt(eventId, after.id) : undefined);
  const last = select({ id: eventId })
    .from(deliveries)
    .where(isBehind)
    .orderBy(desc(eventId))
    .limit(1)
    .offset(DELIVERIES_LOOKED_THROUGH - 1);
  const isFiltered = Boolean(state || type);
  const lookedThrough: Statements<{ id: string }[]> = isFiltered ? rows(last) : inOrder([]);
  const [known, [bound], found] = await commit(
    db,
    inOrder([
      isThere(webhookId),
      lookedThrough,
      select(SHOWN)
        .from(deliveries)
        // Cross: in the order of the deliveries, whatever the planner thinks of the events.
        .crossJoin(events)
        .where(
          and(
            IS_ITS_EVENT,
            isBehind,
            isFiltered ? gte(eventId, sql`coalesce(${last}, '')`) : undefined,
            state ? eq(deliveries.state, state) : undefined,
            type ? eq(events.type, type) : undefined,
          ),
        )
        .orderBy(desc(eventId))
        .limit(limit + 1),
    ]),
  );
  if (known.length === 0) throw unknownWebhook();
  const position = (row: DeliveryRow) => ({ at: row.createdAt, id: row.eventId });
  const listing = toListing(found, limit, position, toView);
  // Behind what was looked through.
  return !listing.next && bound ? { ...listing, next: { at: 0, id: bound.id } } : listing;
}

/** One delivery with all that is kept of it. @throws UnknownInput when there is none. */
export async function findDelivery(
  db: Database,
  webhookId: string,
  eventId: string,
): Promise<DeliveryDetails> {
  const { at, outcome, status, durationMs } = attempts;
  const [known, [row], failed] = await commit(
    db,
    inOrder([
      isThere(webhookId),
      select({ ...SHOWN, body: events.body })
        .from(deliveries)
        .innerJoin(events, IS_ITS_EVENT)
        .where(and(eq(deliveries.subscriptionId, webhookId), eq(deliveries.eventId, eventId))),
      select({ at, outcome, status, durationMs })
        .from(attempts)
        .where(and(eq(attempts.subscriptionId, webhookId), eq(attempts.eventId, eventId)))
        .orderBy(attempts.attempt),
    ]),
  );
  if (known.length === 0) throw unknownWebhook();
  if (!row) throw new UnknownInput("eventId", "no such delivery to this subscription");
  const failedAttempts = failed.map((attempt) => ({ ...attempt, at: isoTime(attempt.at) }));
  return { ...toView(row), failedAttempts, body: row.body };
}

function isThere(webhookId: string) {
  return rows(
    select({ id: subscriptions.id })
      .from(subscriptions)
      .where(and(eq(subscriptions.id, webhookId), isNull(subscriptions.deletedAt))),
  );
}

function toView(row: DeliveryRow): DeliveryView {
  const { eventId, type, state, lastOutcome } = row;
  return {
    ...{ eventId, type },
    createdAt: isoTime(row.createdAt),
    ...{ state, attempts: row.attempts },
    dueAt: state === "pending" ? isoTime(row.dueAt) : null,
    settledAt: isoTimeOrNull(row.settledAt),
    lastAttempt:
      lastOutcome === null
        ? null
        : {
            // What was settled before attempts were dated was settled by its last one.
            at: isoTimeOrNull(row.lastAt ?? row.settledAt),
            outcome: lastOutcome,
            status: row.lastStatus,
            durationMs: row.lastDurationMs,
          },
  };
}
