import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { commaList, qb } from "../db/builder.ts";
import type { RowQuery } from "../db/client.ts";
import { deliveries, events, PRIORITY, subscriptions } from "../db/schema.ts";
import { BODY } from "../events/bodies.ts";
import type { DueDelivery } from "./send.ts";

/*
 * When pending deliveries may be sent, and in which order, in SQL. Two columns decide: the due time of the delivery, and the
 * circuit of its event type at the subscription, which holds everything but resends. policy.ts decides about both.
 *
 * The pending deliveries of a subscription form a line for each event type and priority, in the order of their due
 * times. The index `deliveries_due_of_subscription` begins with the line, so reading its first delivery takes one row,
 * however long the line is.
 */

const LINES_JSON = JSON.stringify(
  WebhookEvent.options.flatMap((type) =>
    Object.values(PRIORITY).map((priority) => [type, priority]),
  ),
);

/** An item of a FROM clause, `line`: the lines that a subscription may have, each as `[type, priority]`. */
export const LINES = sql.raw(`json_each('${LINES_JSON}') AS line`);

/** SQL: the priority of a resend. It is literal, because a statement may have at most 100 parameters. */
export const RESEND = sql.raw(`${PRIORITY.resend}`);

/** SQL condition: the delivery of the subscription is pending and stands in the `line`. */
export function isInLine(): SQL {
  return sql`${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.state} = 'pending'
    AND ${deliveries.type} = line.value->>0 AND ${deliveries.priority} = line.value->>1`;
}

/** SQL expression: when the open circuit of an event type may be probed next, in Unix milliseconds; 0 if it is closed. */
function probeAt(type: SQL): SQL<number> {
  return sql`coalesce(${subscriptions.circuits} -> ${type} ->> 'probeAt', 0)`;
}

/** SQL expression: when a pending delivery may be sent, in Unix milliseconds. */
export function sendableAt(): SQL<number> {
  return sql`max(${deliveries.dueAt},
    iif(${deliveries.priority} = ${RESEND}, 0, ${probeAt(sql`${deliveries.type}`)}))`;
}

/**
 * SQL expression: when the subscription may be sent its next delivery; null if none is pending. Of each line, the
 * delivery that is due first suffices, because one circuit holds the whole line.
 */
export function nextSendAt(): SQL<number | null> {
  return sql`(SELECT min((SELECT ${sendableAt()} FROM ${deliveries}
    WHERE ${isInLine()} ORDER BY ${deliveries.dueAt} LIMIT 1)) FROM ${LINES})`;
}

const PROBE_AT = probeAt(sql`(line.value->>0)`);
const NOW = sql`${sql.placeholder("now")}`;
const IS_DUE = sql`${isInLine()} AND ${deliveries.dueAt} <= ${NOW}`;
// The limit is an expression, because SQLite recompiles a statement for each value of a bare LIMIT parameter.
const LIMIT = sql`0 + ${sql.placeholder("limit")}`;

/** The columns of a `DueDelivery`: what flow control needs, and the row that its body is made from. */
const DUE_DELIVERY = sql`${deliveries.priority} AS priority, ${deliveries.stepsUsed} AS stepsUsed,
  ${deliveries.attemptsMade} AS attemptsMade, ${deliveries.firstAt} AS firstAt, ${deliveries.dueAt} AS dueAt,
  ${commaList(Object.entries(BODY).map(([name, field]) => sql`${field} AS ${sql.identifier(name)}`))}`;

/**
 * Selects up to `limit` deliveries that may be sent now. Resends come first. Then event types take turns, so that none
 * waits for the backlog of another. Within a type, the priority and the due time decide. Of a type whose circuit is open,
 * it selects the candidates for a probe, of which `chooseProbe` takes one.
 *
 * `CROSS JOIN` makes SQLite join in the order of the text. A part of a `UNION` may have a `LIMIT` only in a subquery.
 *
 * @param which SQL condition on `subscriptions` that holds for one subscription, the placeholder `subscriptionId`.
 */
export function selectDueOf(which: SQL): RowQuery<DueDelivery> {
  return qb.all<DueDelivery>(sql`
    WITH head AS (
      -- Of each line that no circuit holds, up to the limit. The inner query finds them in deliveries_due_of_subscription alone.
      SELECT ${deliveries.eventId} AS event_id, ${deliveries.type} AS type, ${deliveries.priority} AS priority, ${deliveries.dueAt} AS due_at
      FROM ${subscriptions} CROSS JOIN ${LINES} ON line.value->>1 = ${RESEND} OR ${PROBE_AT} = 0
        CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} IN (
          SELECT ${deliveries.eventId} FROM ${deliveries} WHERE ${IS_DUE}
          ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT ${LIMIT})
      WHERE ${which}
      UNION ALL
      -- Of each line that an open circuit holds, the candidates for a probe: the first, and the last one not tried yet.
      SELECT ${deliveries.eventId}, ${deliveries.type}, ${deliveries.priority}, ${deliveries.dueAt}
      FROM ${subscriptions} CROSS JOIN ${LINES} ON line.value->>1 <> ${RESEND} AND ${PROBE_AT} BETWEEN 1 AND ${NOW}
        CROSS JOIN ${deliveries} ON ${deliveries.subscriptionId} = ${subscriptions.id} AND ${deliveries.eventId} IN (
          SELECT event_id FROM (SELECT ${deliveries.eventId} FROM ${deliveries} WHERE ${IS_DUE}
            ORDER BY ${deliveries.dueAt}, ${deliveries.eventId} LIMIT 1)
          UNION ALL
          SELECT event_id FROM (SELECT ${deliveries.eventId} FROM ${deliveries} WHERE line.value->>1 = ${PRIORITY.untried} AND ${IS_DUE}
            ORDER BY ${deliveries.dueAt} DESC, ${deliveries.eventId} DESC LIMIT 1))
      WHERE ${which}),
    ordered AS (
      SELECT event_id, priority <> ${RESEND} AS takes_turns,
        row_number() OVER (PARTITION BY type ORDER BY priority, due_at, event_id) AS position
      FROM head)
    SELECT ${DUE_DELIVERY}
    FROM ordered CROSS JOIN ${deliveries}
        ON ${deliveries.subscriptionId} = ${sql.placeholder("subscriptionId")} AND ${deliveries.eventId} = ordered.event_id
      CROSS JOIN ${events} ON ${events.workspaceId} = ${deliveries.workspaceId} AND ${events.id} = ${deliveries.eventId}
    ORDER BY ordered.takes_turns, ordered.position, ${deliveries.dueAt}, ${deliveries.eventId} LIMIT ${LIMIT}`);
}

/**
 * A common table expression, `with_pending`, for `WITH RECURSIVE`: the ids of the subscriptions with pending
 * deliveries. It jumps from one subscription to the next in the index, however many pending deliveries each has.
 */
export function subscriptionsWithPending(after: string | Placeholder): SQL {
  // Raw SQL: Drizzle has no recursive queries.
  return sql`with_pending (id) AS (
      SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > ${after}
      UNION ALL
      SELECT (SELECT min(${deliveries.subscriptionId}) FROM ${deliveries}
        WHERE ${deliveries.state} = 'pending' AND ${deliveries.subscriptionId} > with_pending.id)
      FROM with_pending WHERE with_pending.id IS NOT NULL)`;
}
