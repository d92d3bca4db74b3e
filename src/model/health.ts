import { sql } from "drizzle-orm";
import { UnknownInput } from "../contract/input-error.ts";
import { PENDING_COUNTED_MAX } from "../contract/limits.ts";
import type { WebhookEvent } from "../contract/resources.ts";
import { isoTime } from "../contract/time.ts";
import { type Database, retrying } from "../db/client.ts";
import { deliveries, type LastAttempt, subscriptions } from "../db/schema.ts";

/** How an attempt ended, as the Platform door tells it. */
export interface AttemptView extends Omit<LastAttempt, "at"> {
  at: string | null;
}

/** A subscription with its health, as the Platform door tells it. */
export interface WebhookView {
  webhookId: string;
  url: string;
  events: WebhookEvent[];
  createdAt: string;
  disabledAt: string | null;
  state: "healthy" | "slow" | "failing" | "disabled";
  /** The first failure since the last success. */
  failingSince: string | null;
  /** Failures since then. */
  failures: number;
  /** At most `PENDING_COUNTED_MAX`, for that many or more. */
  pending: number;
  /** When the next post may start, in the past for one that is due; null when none is to come. */
  nextAttemptAt: string | null;
  lastAttempt: AttemptView | null;
}

interface HealthRow {
  webhookId: string;
  url: string;
  events: string;
  createdAt: number;
  disabledAt: number | null;
  failingSince: number | null;
  failures: number;
  slow: 0 | 1;
  nextAt: number;
  pending: number;
  dueAt: number | null;
  /** As JSON. */
  noted: string | null;
  recent: string | null;
}

/** Deliveries among which the last attempt is looked for: a success writes nothing but its own row. */
const RECENT = 100;

/**
 * The subscriptions of a workspace, newest first, each with its health.
 *
 * @param webhookId of this one alone, if it is one of the workspace.
 */
export async function listHealth(
  db: Database,
  workspaceId: string,
  webhookId?: string,
): Promise<WebhookView[]> {
  const ofSubscription = sql`FROM ${deliveries} AS d WHERE d.subscription_id = s.id`;
  const found = await retrying(() =>
    db.all<HealthRow>(sql`
    SELECT s.id AS webhookId, s.url AS url, s.events AS events, s.created_at AS createdAt,
      s.disabled_at AS disabledAt, s.failing_since AS failingSince, s.failures AS failures,
      s.slow AS slow, s.next_at AS nextAt, s.last_attempt AS noted,
      (SELECT count(*) FROM (SELECT 1 ${ofSubscription} AND d.state = 'pending'
        LIMIT ${PENDING_COUNTED_MAX})) AS pending,
      (SELECT min(d.due_at) ${ofSubscription} AND d.state = 'pending') AS dueAt,
      (SELECT json_object('at', last_at, 'outcome', last_outcome, 'status', last_status,
          'durationMs', last_duration_ms)
        FROM (SELECT d.* ${ofSubscription} ORDER BY d.event_id DESC LIMIT ${RECENT})
        WHERE last_at IS NOT NULL ORDER BY last_at DESC LIMIT 1) AS recent
    FROM ${subscriptions} AS s
    WHERE s.workspace_id = ${workspaceId} AND s.deleted_at IS NULL
      AND ${webhookId === undefined ? sql`true` : sql`s.id = ${webhookId}`}
    ORDER BY s.created_at DESC, s.id DESC`),
  );
  return found.map(toView);
}

function toView(row: HealthRow): WebhookView {
  const { webhookId, url, failures, pending, nextAt, dueAt } = row;
  const [last = null] = [row.noted, row.recent]
    .flatMap((text) => (text === null ? [] : [JSON.parse(text) as LastAttempt]))
    .toSorted((a, b) => b.at - a.at);
  return {
    ...{ webhookId, url },
    events: JSON.parse(row.events),
    createdAt: isoTime(row.createdAt),
    disabledAt: isoTimeOrNull(row.disabledAt),
    state: stateOf(row),
    failingSince: isoTimeOrNull(row.failingSince),
    ...{ failures, pending },
    nextAttemptAt:
      row.disabledAt !== null || dueAt === null ? null : isoTime(Math.max(dueAt, nextAt)),
    lastAttempt: last && { ...last, at: isoTime(last.at) },
  };
}

function stateOf({ disabledAt, failingSince, slow }: HealthRow): WebhookView["state"] {
  if (disabledAt !== null) return "disabled";
  if (failingSince !== null) return "failing";
  return slow === 1 ? "slow" : "healthy";
}

/** A time in ISO 8601, where there is one. */
export function isoTimeOrNull(time: number | null): string | null {
  return time === null ? null : isoTime(time);
}

/** The fault of an input whose subscription nobody knows. */
export function unknownWebhook(): UnknownInput {
  return new UnknownInput("webhookId", "no such subscription");
}
