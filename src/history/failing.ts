import { z } from "@hono/zod-openapi";
import { and, desc, eq, isNull, type SQL, sql } from "drizzle-orm";
import type { Position } from "../contract/cursor.ts";
import { PAGE_LIMIT } from "../contract/limits.ts";
import { inJson, qb } from "../db/builder.ts";
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

/** The streams of a filter: a FROM clause with a row for each subscription and state. */
function streamsOf(workspaceId: string, { state, webhookId }: FailureFilter): SQL {
  const stored = FailureState.options
    .filter((one) => state == null || one === state)
    .map((one) => (one === "retrying" ? "pending" : one));
  return sql`(
    SELECT ${subscriptions.id} AS subscription_id, stored.value AS state
    FROM ${subscriptions} CROSS JOIN json_each(${JSON.stringify(stored)}) AS stored
    WHERE ${and(
      eq(subscriptions.workspaceId, workspaceId),
      isNull(subscriptions.deletedAt),
      webhookId ? eq(subscriptions.id, webhookId) : undefined,
    )}) AS stream`;
}

/** SQL expression: the share of a stream, at least `min`. D1 binds numbers as floats, which are no limit. */
function shareOf(streams: SQL, min = 1): SQL<number> {
  const share = sql`${FAILURES_EXAMINED_MAX} / max(1, (SELECT count(*) FROM ${streams}))`;
  return sql`CAST(max(${min}, ${share}) AS INTEGER)`;
}

/** SQL query: the ids of the newest `examined` events of a stream, newest first. */
function inStream(which: SQL | undefined, examined: SQL): SQL {
  return sql`SELECT ${deliveries.eventId} AS id FROM ${UNSUCCESSFUL}
    WHERE ${and(
      sql`${deliveries.subscriptionId} = stream.subscription_id AND ${deliveries.state} = stream.state`,
      isUnsuccessful(),
      which,
    )}
    ORDER BY ${deliveries.eventId} DESC LIMIT ${examined}`;
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
 * Selects the events of a page, newest first, of which the last one only shows that there are more. Of each stream, it
 * reads the newest entries in the index, once. Streams that have more are examined down to `floor`, and the others whole.
 */
function selectPage(streams: SQL, which: SQL | undefined, filter: FailureFilter, limit: number) {
  const isFiltered = Boolean(filter.type || filter.status);
  const examined = isFiltered ? shareOf(streams, limit + 1) : sql.raw(`${limit + 1}`);
  return qb.all<{ floor: string | null; ids: string }>(sql`
    WITH read AS MATERIALIZED (
      SELECT stream.subscription_id AS subscription_id,
        (SELECT json_group_array(id) FROM (${inStream(which, examined)})) AS ids
      FROM ${streams}),
    -- The oldest of those that were examined, if there may be more.
    bound AS MATERIALIZED (SELECT max(ids ->> ('$[' || (${examined} - 1) || ']')) AS floor FROM read)
    SELECT floor, (SELECT json_group_array(id) FROM (
      SELECT DISTINCT ${deliveries.eventId} AS id
      FROM read CROSS JOIN json_each(read.ids) AS entry
        CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = read.subscription_id AND ${deliveries.eventId} = entry.value
        CROSS JOIN ${subscriptions} ON ${subscriptions.id} = read.subscription_id
      WHERE entry.value >= coalesce(bound.floor, '') AND ${isMatch(filter)}
      ORDER BY id DESC LIMIT ${limit + 1})) AS ids
    FROM bound`);
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
  const streams = streamsOf(workspaceId, filter);
  const isOnPage = isWanted(filter, search, request.after);
  const [page] = await query(db, selectPage(streams, isOnPage, filter, limit));
  const ids: string[] = JSON.parse(page?.ids ?? "[]");
  const { owner, found } = await query(db, {
    owner: qb
      .select({ workspaceId: workspaces.id, sealedDataKey: workspaces.sealedDataKey })
      .from(workspaces)
      .where(eq(workspaces.id, workspaceId)),
    found: qb
      .select({ webhookId: deliveries.subscriptionId, ...DELIVERY_COLUMNS })
      .from(streams)
      // CROSS JOIN makes SQLite look up the events of the page in each stream.
      .crossJoin(deliveries)
      .crossJoin(subscriptions)
      .crossJoin(events)
      .where(
        and(
          sql`${deliveries.subscriptionId} = stream.subscription_id`,
          inJson(deliveries.eventId, ids.slice(0, limit)),
          sql`${deliveries.state} = stream.state`,
          isUnsuccessful(),
          sql`${subscriptions.id} = stream.subscription_id`,
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
  const resumeAt = ids.length > limit ? ids[limit - 1] : page?.floor;
  return { items, next: search ? search.next : after(resumeAt) };
}

function after(eventId: string | null | undefined): Position | null {
  return eventId == null ? null : { at: 0, id: eventId };
}

interface CountOfStream {
  webhookId: string;
  state: string;
  count: number;
  hasMore: 0 | 1;
}

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
  const streams = streamsOf(workspaceId, filter);
  const share = shareOf(streams);
  const counts = await db.all<CountOfStream>(sql`
    SELECT stream.subscription_id AS webhookId, stream.state AS state,
      count(*) >= ${share} AS hasMore, sum(${isMatch(filter)}) AS count
    FROM ${streams} CROSS JOIN ${deliveries} CROSS JOIN ${subscriptions}
    WHERE ${deliveries.subscriptionId} = stream.subscription_id
      AND ${deliveries.eventId} IN (${inStream(isOnPage, share)})
      AND ${subscriptions.id} = stream.subscription_id
    GROUP BY stream.subscription_id, stream.state`);
  const webhookIds = [...new Set(counts.map((one) => one.webhookId))];
  return webhookIds.map((webhookId) => {
    const own = counts.filter((one) => one.webhookId === webhookId);
    const of = (state: string) => own.find((one) => one.state === state)?.count ?? 0;
    const hasMore = own.some((one) => one.hasMore === 1);
    return { webhookId, retrying: of("pending"), exhausted: of("exhausted"), hasMore };
  });
}
