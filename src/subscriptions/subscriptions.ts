import { z } from "@hono/zod-openapi";
import { and, eq, isNotNull, isNull, sql } from "drizzle-orm";
import { WebhookEvent } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { mapColumns, qb } from "../db/builder.ts";
import {
  counted,
  type Database,
  type Executable,
  query,
  type ResultOf,
  readAs,
  type Statements,
} from "../db/client.ts";
import { isOnPage, mapItems, type PageRequest, preparePages } from "../db/page.ts";
import { subscriptions, workspaces } from "../db/schema.ts";
import { endSubscriptions } from "../delivery/endings.ts";
import { FRESH, laneOf, type Pace } from "../delivery/policy.ts";
import { PACE } from "../delivery/settle.ts";
import type { Wake } from "../delivery/wake.ts";
import { IS_ACTIVE, isSubscription, unknownWebhook } from "./conditions.ts";
import { earlierSecretsAt } from "./secrets.ts";

type SubscriptionRow = typeof subscriptions.$inferSelect;

const { id, url, events, createdAt, disabledAt } = subscriptions;
const SHOWN = { id, url, events, createdAt, disabledAt };

const ORDER = { at: subscriptions.createdAt, id: subscriptions.id };
const pages = preparePages(
  ORDER,
  qb
    .select(SHOWN)
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, sql.placeholder("workspaceId")),
        isNull(subscriptions.deletedAt),
        isOnPage(ORDER),
      ),
    ),
);

/** One page of the workspace's subscriptions, newest first. */
export async function listSubscriptions(db: Database, workspaceId: string, request: PageRequest) {
  return mapItems(await pages(db, { workspaceId }, request), toWebhook);
}

/** The workspace of a subscription, and whether that was deleted; undefined if there is none. */
export async function findOwner(db: Database, id: string) {
  const { workspaceId, deletedAt } = subscriptions;
  const owner = db.select({ workspaceId, deletedAt }).from(subscriptions);
  const [found] = await owner.where(eq(subscriptions.id, id));
  return found;
}

/** The ids of the workspace's subscriptions that an API key created. */
export async function listCreatedBy(
  db: Database,
  workspaceId: string,
  keyId: string,
): Promise<string[]> {
  const found = await db
    .select({ id: subscriptions.id })
    .from(subscriptions)
    .where(
      and(
        eq(subscriptions.workspaceId, workspaceId),
        eq(subscriptions.keyId, keyId),
        isNull(subscriptions.deletedAt),
      ),
    );
  return found.map(({ id }) => id);
}

/**
 * Deletes a subscription of the workspace, or of any; its pending deliveries are void. Reads whether it was
 * there, and whom to wake.
 */
export function deleteSubscription(
  workspaceId: string | null,
  id: string,
  now: number,
): Statements<{ found: boolean; wakes: Wake[] }> {
  const isOwn = workspaceId === null ? undefined : eq(subscriptions.workspaceId, workspaceId);
  const ended = endSubscriptions(and(eq(subscriptions.id, id), isOwn), {
    deletedAt: now,
    // A repeated request creates a new one, because this one's secret is gone.
    idempotencyKey: null,
    earlierSecrets: null,
  });
  return readAs(ended, ({ count, wakes }) => ({ found: count > 0, wakes }));
}

export type Changeable = "url" | "events" | "description" | "headerNames" | "sealedHeaders";

/**
 * Changes the given fields of a subscription. Nothing is known yet about another URL, so its pace is that of a
 * new one. Reads 0 if nothing has changed.
 *
 * @param seen the fields as they were read; if one is no longer the same, nothing is changed.
 */
export function updateSubscription(
  id: string,
  changed: Partial<Pick<SubscriptionRow, Changeable>>,
  seen?: Pick<SubscriptionRow, Changeable>,
): Statements<number> {
  const isSame = sql`${subscriptions.url} = ${changed.url}`;
  const fresh = mapColumns(
    subscriptions,
    PACE,
    (column, name) =>
      sql`iif(${isSame}, ${column}, ${sql.param(FRESH[name as keyof Pace], column)})`,
  );
  const isSeen =
    seen &&
    sql`${subscriptions.url} = ${seen.url}
      AND ${subscriptions.events} = ${sql.param(seen.events, subscriptions.events)}
      AND ${subscriptions.description} IS ${seen.description}
      AND ${subscriptions.sealedHeaders} IS ${seen.sealedHeaders}`;
  return counted(
    qb
      .update(subscriptions)
      .set({ ...changed, ...(changed.url && fresh) })
      .where(and(isSubscription(id), isSeen)),
  );
}

/** Disables a subscription; its pending deliveries are void. Reads whom to wake. */
export function disableSubscription(id: string, now: number): Statements<Wake[]> {
  const isEnabled = and(eq(subscriptions.id, id), isNull(subscriptions.disabledAt));
  const ended = endSubscriptions(isEnabled, { disabledAt: now });
  return readAs(ended, ({ wakes }) => wakes);
}

/** Makes the pending deliveries of a workspace's subscriptions void. Reads whom to wake. */
export function cancelPendingOf(workspaceId: string): Statements<Wake[]> {
  const ended = endSubscriptions(eq(subscriptions.workspaceId, workspaceId));
  return readAs(ended, ({ wakes }) => wakes);
}

/** The fields of a subscription that the Platform API needs. */
export type KnownSubscription = ResultOf<ReturnType<typeof knownSubscription>>;

/** The subscription with this id. @throws InputError if there is none or it was deleted. */
export function findSubscription(
  db: Database,
  id: string,
  now: number,
): Promise<KnownSubscription> {
  return query(db, knownSubscription(id, now));
}

/** Like `findSubscription`, as a part of a transaction. */
export function knownSubscription(id: string, now: number) {
  const { workspaceId, url, createdAt, sealedSecret, sealedHeaders, slow, nextAt } = subscriptions;
  const found = qb
    .select({
      workspaceId,
      url,
      createdAt,
      sealedSecret,
      sealedHeaders,
      earlierSecrets: earlierSecretsAt(now),
      dataKey: workspaces.dataKey,
      accessGranted: workspaces.accessGranted,
      isActive: sql`${IS_ACTIVE}`.mapWith(Boolean),
      slow,
      nextAt,
    })
    .from(subscriptions)
    .innerJoin(workspaces, eq(workspaces.id, workspaceId))
    .where(isSubscription(id));
  return readAs(found, ([row]) => {
    if (!row) throw unknownWebhook();
    const { slow: isSlow, nextAt: waitsUntil, ...known } = row;
    return { id, ...known, lane: laneOf({ slow: isSlow, nextAt: waitsUntil }) };
  });
}

/**
 * Re-enables a disabled subscription and resets its health. An active one keeps its own: otherwise,
 * a dead receiver that is enabled over and over would never be disabled.
 */
export function enableSubscription(id: string): Executable {
  return qb
    .update(subscriptions)
    .set({
      disabledAt: null,
      disabledByFailures: false,
      ...FRESH,
    })
    .where(and(isSubscription(id), isNotNull(subscriptions.disabledAt)));
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
      "Null while the subscription is active; otherwise when it was disabled: after prolonged delivery failures, or by an administrator.",
    )
      .nullable()
      .openapi({ example: null }),
  })
  .openapi("Webhook", {
    description: "A subscription: a URL and the kinds of events that are posted to it.",
  });

export type Webhook = z.infer<typeof Webhook>;

/** The public shape, without the secret. */
export function toWebhook(row: Pick<SubscriptionRow, keyof typeof SHOWN>): Webhook {
  return {
    id: row.id,
    url: row.url,
    events: row.events,
    created_at: isoTime(row.createdAt),
    disabled_at: isoTimeOrNull(row.disabledAt),
  };
}
