import { z } from "@hono/zod-openapi";
import { and, eq, isNotNull, isNull, type SQL, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import {
  counted,
  type Database,
  inOrder,
  prepared,
  query,
  readAs,
  rows,
  type Statements,
  write,
} from "../db/client.ts";
import { byCreation, isBehind, listPage, newestFirst, type PageRequest, ROWS } from "../db/page.ts";
import { subscriptions, workspaces } from "../db/schema.ts";
import { IS_ACTIVE } from "./dispatch/lease.ts";
import { type Lane, laneOf } from "./dispatch/policy.ts";
import { CANCEL_PENDING, cancelVoid, cancelVoidOf } from "./endings.ts";
import { unknownWebhook } from "./health.ts";
import { deleteSecretsOfDeleted, earlierSecretsAt } from "./secrets.ts";

type SubscriptionRow = typeof subscriptions.$inferSelect;

const page = prepared(
  qb
    .select({
      id: subscriptions.id,
      url: subscriptions.url,
      events: subscriptions.events,
      createdAt: subscriptions.createdAt,
      disabledAt: subscriptions.disabledAt,
    })
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, sql.placeholder("workspaceId")),
        isNull(subscriptions.deletedAt),
        isBehind(subscriptions.createdAt, subscriptions.id),
      ),
    )
    .orderBy(...newestFirst(subscriptions.createdAt, subscriptions.id))
    .limit(ROWS),
);

/** One page of the workspace's subscriptions, newest first. */
export async function listSubscriptions(db: Database, workspaceId: string, request: PageRequest) {
  return listPage(db, page, { workspaceId }, request, byCreation, toWebhook);
}

/**
 * Deletes a subscription of the workspace and cancels its pending deliveries. Reads whether it
 * existed, and whether deliveries remain to be cancelled.
 */
export function deleteSubscription(
  workspaceId: string,
  id: string,
  now: number,
): Statements<{ found: boolean; left: boolean }> {
  return deletion(id, now, eq(subscriptions.workspaceId, workspaceId));
}

/** Like `deleteSubscription`, for any workspace. */
export function deleteAnySubscription(
  id: string,
  now: number,
): Statements<{ found: boolean; left: boolean }> {
  return deletion(id, now);
}

/** Changes the given fields of a subscription. Reads whether it exists. */
export function updateSubscription(
  id: string,
  changed: Partial<Pick<SubscriptionRow, "events" | "description">>,
): Statements<boolean> {
  // With other events, it is no longer what a repeated request asks for.
  const idempotencyKey = changed.events ? { idempotencyKey: null } : {};
  const updated = counted(
    qb
      .update(subscriptions)
      .set({ ...changed, ...idempotencyKey })
      .where(and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt))),
  );
  return readAs(updated, (count) => count > 0);
}

/**
 * Disables a subscription and cancels its pending deliveries. Reads whether it exists, and
 * whether deliveries remain to be cancelled.
 */
export function disableSubscription(
  id: string,
  now: number,
): Statements<{ found: boolean; left: boolean }> {
  const statements = inOrder([
    qb
      .update(subscriptions)
      .set({ disabledAt: now, ...CANCEL_PENDING })
      .where(
        and(
          eq(subscriptions.id, id),
          isNull(subscriptions.disabledAt),
          isNull(subscriptions.deletedAt),
        ),
      ),
    cancelVoid([id], now),
    qb
      .select({ cancelling: subscriptions.cancelling })
      .from(subscriptions)
      .where(and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt))),
  ]);
  return readAs(statements, ([, , [row]]) => ({ found: !!row, left: row?.cancelling === true }));
}

function deletion(
  id: string,
  now: number,
  condition?: SQL,
): Statements<{ found: boolean; left: boolean }> {
  const isMeant = and(eq(subscriptions.id, id), condition);
  const statements = inOrder([
    counted(
      qb
        .update(subscriptions)
        // A repeated request creates a new one, because this one's secret is gone.
        .set({ deletedAt: now, idempotencyKey: null, ...CANCEL_PENDING })
        .where(and(isMeant, isNull(subscriptions.deletedAt))),
    ),
    // Before the subscription row goes, because they are found through it.
    deleteSecretsOfDeleted(isMeant),
    cancelVoid([id], now),
    qb.select({ id: subscriptions.id }).from(subscriptions).where(eq(subscriptions.id, id)),
  ]);
  return readAs(statements, ([deleted, , , left]) => ({
    found: deleted > 0,
    left: left.length > 0,
  }));
}

/**
 * Cancels the pending deliveries of a workspace's subscriptions. Reads the ids of those with
 * deliveries that remain to be cancelled.
 */
export function cancelPendingOf(workspaceId: string, now: number): Statements<string[]> {
  const statements = inOrder([
    qb
      .update(subscriptions)
      .set(CANCEL_PENDING)
      .where(and(eq(subscriptions.workspaceId, workspaceId), isNull(subscriptions.deletedAt))),
    cancelVoidOf(workspaceId, now),
    qb
      .select({ id: subscriptions.id })
      .from(subscriptions)
      .where(and(eq(subscriptions.workspaceId, workspaceId), sql`${subscriptions.cancelling}`)),
  ]);
  return readAs(statements, ([, , left]) => left.map(({ id }) => id));
}

/** The fields of a subscription that the Platform API needs. */
export interface KnownSubscription {
  id: string;
  workspaceId: string;
  url: string;
  /** Unix milliseconds. */
  createdAt: number;
  sealedSecret: string;
  /** Sealed secrets that were rotated out and still sign. */
  earlierSecrets: string[];
  /** The data key of its workspace, encrypted. */
  dataKey: string | null;
  /** Whether its workspace has access. */
  accessGranted: boolean;
  /** Whether events are owed to it: it is not disabled and its workspace has access. */
  isOwed: boolean;
  lane: Lane;
}

/** The subscription with this id. @throws InputError if there is none or it was deleted. */
export function findSubscription(
  db: Database,
  id: string,
  now: number,
): Promise<KnownSubscription> {
  return query(db, knownSubscription(id, now));
}

/** Like `findSubscription`, as a part of a transaction. */
export function knownSubscription(id: string, now: number): Statements<KnownSubscription> {
  const { workspaceId, url, createdAt, sealedSecret, slow, backoff } = subscriptions;
  const found = rows(
    qb
      .select({
        workspaceId,
        url,
        createdAt,
        sealedSecret,
        earlierSecrets: earlierSecretsAt(now),
        dataKey: workspaces.dataKey,
        accessGranted: workspaces.accessGranted,
        isOwed: sql`${IS_ACTIVE}`.mapWith(Boolean),
        slow,
        backoff,
      })
      .from(subscriptions)
      .innerJoin(workspaces, eq(workspaces.id, workspaceId))
      .where(and(eq(subscriptions.id, id), isNull(subscriptions.deletedAt))),
  );
  return readAs(found, ([row]) => {
    if (!row) throw unknownWebhook();
    const { slow: isSlow, backoff: waits, ...known } = row;
    return { id, ...known, lane: laneOf({ slow: isSlow, backoff: waits }) };
  });
}

/**
 * Re-enables a disabled subscription and resets its health. An active one keeps its own: otherwise,
 * a dead receiver that is enabled over and over would never be disabled.
 */
export function enableSubscription(id: string): Statements<unknown> {
  return write(
    qb
      .update(subscriptions)
      .set({
        disabledAt: null,
        failingSince: null,
        failures: 0,
        postsAtOnce: 1,
        backoff: 0,
        nextAt: 0,
        slow: false,
      })
      .where(
        and(
          eq(subscriptions.id, id),
          isNotNull(subscriptions.disabledAt),
          isNull(subscriptions.deletedAt),
        ),
      ),
  );
}

/** The public shape of a subscription. */
export const Webhook = z
  .object({
    id: idField("webhook", "Identifies the subscription."),
    url: z.url().openapi({
      description: "The URL that events are posted to.",
      example: "https://hooks.example.com/automations",
    }),
    events: z.array(WebhookEvent).openapi({
      description: "The kinds of events that are posted.",
      example: ["lead.created"],
    }),
    created_at: timeField("When the subscription was created."),
    disabled_at: timeField(
      "Null while the subscription is active; otherwise when it was disabled, after prolonged delivery failures.",
    )
      .nullable()
      .openapi({ example: null }),
  })
  .openapi("Webhook", {
    description: "A subscription: a URL and the kinds of events that are posted to it.",
  });

export type Webhook = z.infer<typeof Webhook>;

/** The public shape, without the secret. */
export function toWebhook(
  row: Pick<SubscriptionRow, "id" | "url" | "events" | "createdAt" | "disabledAt">,
): Webhook {
  return {
    id: row.id,
    url: row.url,
    events: row.events,
    created_at: isoTime(row.createdAt),
    disabled_at: row.disabledAt === null ? null : isoTime(row.disabledAt),
  };
}
