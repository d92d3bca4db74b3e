import { z } from "@hono/zod-openapi";
import { and, desc, eq, isNull, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { PAGE_LIMIT } from "../contract/limits.ts";
import { qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import type { Page, PageRequest } from "../db/page.ts";
import { deliveries, events, subscriptions, workspaces } from "../db/schema.ts";
import { deliveryState, isUnsuccessful, UNSUCCESSFUL } from "../db/states.ts";
import {
  DELIVERY_COLUMNS,
  type DeliveryFilter,
  type DeliveryRow,
  findLeadsOf,
  hasStatus,
  isWanted,
  openDataKeyOf,
  toView,
} from "./deliveries.ts";
import { readSubjects } from "./subject.ts";
import type { FailureCount, FailureView } from "./views.ts";

/*
 * Lists and counts the failed deliveries of a workspace. An index has those of each subscription and state, newest event
 * first, so both go through one stream of deliveries for each subscription and state.
 */

/** Maximum deliveries that a filtered page, or a count, examines. Each stream has an equal share. */
export const FAILURES_EXAMINED_MAX = 4_000;

/** Maximum events of a page, because each may have failed at every webhook. */
export const FAILURES_LIMIT_MAX = PAGE_LIMIT.default;

/** The states of failed deliveries. */
export const FailureState = z.enum(["retrying", "exhausted"]);
export type FailureState = z.infer<typeof FailureState>;

/** A filter for the failed deliveries of a workspace. */
export interface FailureFilter extends DeliveryFilter {
  state?: FailureState | null | undefined;
  webhookId?: string | null | undefined;
}

/** A stream, as far as it was examined. */
interface Stream {
  webhookId: string;
  state: string;
  /** The events of the deliveries that the filter admits. */
  eventIds: string[];
  /** The oldest event that was examined, if there may be more. */
  floor: string | null;
}

/**
 * Examines the newest deliveries of each stream, and reads each of them once.
 *
 * @param least minimum deliveries to examine of each stream.
 * @param most maximum of all streams together, of which each has an equal share, unless `least` is more.
 */
async function readStreams(
  db: Database,
  workspaceId: string,
  filter: FailureFilter,
  which: SQL | undefined,
  least: number,
  most: number,
): Promise<Stream[]> {
  const { state, webhookId } = filter;
  const stored = FailureState.options
    .filter((one) => state == null || one === state)
    .map((one) => (one === "retrying" ? "pending" : one));
  const streams = sql`${subscriptions} CROSS JOIN json_each(${JSON.stringify(stored)}) AS stream
    WHERE ${and(
      eq(subscriptions.workspaceId, workspaceId),
      isNull(subscriptions.deletedAt),
      webhookId ? eq(subscriptions.id, webhookId) : undefined,
    )}`;
  // D1 binds numbers as floats, which are no limit.
  const examined = sql`CAST(max(${least}, ${most} / max(1, (SELECT count(*) FROM ${streams}))) AS INTEGER)`;
  const found = await query(
    db,
    qb.all<{ webhookId: string; state: string; read: string }>(sql`
    SELECT ${subscriptions.id} AS webhookId, stream.value AS state,
      (SELECT json_object(
        'eventIds', json_group_array(id) FILTER (WHERE is_listed),
        'floor', iif(count(*) >= ${examined}, min(id), NULL))
        FROM (SELECT ${deliveries.eventId} AS id, ${isMatch(filter)} AS is_listed FROM ${UNSUCCESSFUL}
          WHERE ${and(
            eq(deliveries.subscriptionId, subscriptions.id),
            sql`${deliveries.state} = stream.value`,
            isUnsuccessful(),
            which,
          )}
          ORDER BY ${deliveries.eventId} DESC LIMIT ${examined})) AS read
    FROM ${streams}`),
  );
  return found.map(({ read, ...stream }) => ({ ...stream, ...JSON.parse(read) }));
}

/** SQL condition on the row of a delivery that a stream has found. */
function isMatch({ type, status }: FailureFilter): SQL | undefined {
  return and(
    // The row of a cancelled delivery may still say `pending`.
    sql`${deliveryState()} <> 'cancelled'`,
    type ? eq(deliveries.type, type) : undefined,
    status ? hasStatus(status) : undefined,
  );
}

/**
 * Reads one page of the deliveries of a workspace that are retried or exhausted, newest event first. The page has up to
 * `limit` events, with all their failures, so that none is split between pages. It examines a limited number of
 * deliveries of each stream, so a filtered page may be short or empty and still have a next one.
 */
export async function listFailuresOf(
  db: Database,
  env: Pick<Env, "ENCRYPTION_KEYS">,
  workspaceId: string,
  filter: FailureFilter,
  request: PageRequest,
): Promise<Page<FailureView>> {
  const { limit } = request;
  const search = await findLeadsOf(db, env, filter, workspaceId, request);
  const isOnPage = isWanted(filter, search, request.after);
  const isFiltered = Boolean(filter.type || filter.status);
  const most = isFiltered ? FAILURES_EXAMINED_MAX : 0;
  const streams = await readStreams(db, workspaceId, filter, isOnPage, limit + 1, most);
  // Streams that have more are examined down to here, and the others whole.
  const floor = streams.map((stream) => stream.floor ?? "").reduce(later, "");
  const all = new Set(streams.flatMap(({ eventIds }) => eventIds).filter((id) => id >= floor));
  const ids = [...all].sort().reverse();
  const onPage = new Set(ids.slice(0, limit));
  const entries = streams.flatMap(({ webhookId, state, eventIds }) =>
    eventIds.filter((id) => onPage.has(id)).map((id) => [webhookId, state, id]),
  );
  const { owner, found } = await query(db, {
    owner: qb
      .select({ workspaceId: workspaces.id, sealedDataKey: workspaces.sealedDataKey })
      .from(workspaces)
      .where(eq(workspaces.id, workspaceId)),
    found: qb
      .select({ webhookId: deliveries.subscriptionId, ...DELIVERY_COLUMNS })
      .from(sql`json_each(${JSON.stringify(entries)}) AS entry`)
      // CROSS JOIN makes SQLite look up the deliveries of the page.
      .crossJoin(deliveries)
      .crossJoin(subscriptions)
      .crossJoin(events)
      .where(
        and(
          sql`${deliveries.subscriptionId} = entry.value ->> 0`,
          sql`${deliveries.eventId} = entry.value ->> 2`,
          sql`${deliveries.state} = entry.value ->> 1`,
          isUnsuccessful(),
          eq(subscriptions.id, deliveries.subscriptionId),
          isMatch(filter),
          eq(events.workspaceId, deliveries.workspaceId),
          eq(events.id, deliveries.eventId),
        ),
      )
      .orderBy(desc(deliveries.eventId), desc(deliveries.subscriptionId)),
  });
  const rows = found as (DeliveryRow & { webhookId: string })[];
  const dataKey = await openDataKeyOf(env, owner);
  const subjects = await readSubjects(db, dataKey, workspaceId, rows);
  const items = rows.map((row, i) => ({
    ...toView(row, subjects[i] ?? null),
    webhookId: row.webhookId,
  }));
  const resumeAt = ids.length > limit ? ids[limit - 1] : floor;
  const next: Position | null = resumeAt ? { at: 0, id: resumeAt } : null;
  return { items, next: search ? search.next : next };
}

const later = (one: string, other: string) => (one > other ? one : other);

/**
 * Counts the deliveries that `listFailuresOf` would list, by subscription and state. It examines the newest ones of each
 * stream, and says of each count whether there may be more.
 */
export async function countFailuresOf(
  db: Database,
  workspaceId: string,
  filter: FailureFilter,
): Promise<FailureCount[]> {
  const isOnPage = isWanted(filter, null, null);
  const streams = await readStreams(db, workspaceId, filter, isOnPage, 1, FAILURES_EXAMINED_MAX);
  const counts = new Map<string, FailureCount>();
  for (const { webhookId, state, eventIds, floor } of streams) {
    if (eventIds.length === 0 && floor === null) continue;
    const count = counts.get(webhookId) ?? { webhookId, retrying: 0, exhausted: 0, hasMore: false };
    count[state === "pending" ? "retrying" : "exhausted"] = eventIds.length;
    count.hasMore ||= floor !== null;
    counts.set(webhookId, count);
  }
  return [...counts.values()];
}
