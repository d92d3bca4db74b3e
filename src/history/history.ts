import { z } from "@hono/zod-openapi";
import { and, desc, eq, gte, lt, type SQL, sql } from "drizzle-orm";
import type { DeliveryState, WebhookEvent } from "../contract/enumerations.ts";
import { eventIdAt } from "../contract/ids.ts";
import { unknownInput } from "../contract/input-error.ts";
import { isoTime, isoTimeOrNull } from "../contract/time.ts";
import { qb, toJsonValue } from "../db/builder.ts";
import { type Database, read } from "../db/client.ts";
import { type Listing, mapItems, type PageRequest, toListing } from "../db/page.ts";
import { attempts, deliveries, events, leads, subscriptions } from "../db/schema.ts";
import { HEADERS, TEST_HEADER, WEBHOOK_HEADER } from "../delivery/post.ts";
import { openResponse } from "../delivery/response.ts";
import { openDataKey } from "../encryption/personal-data.ts";
import { BODY, makeBody, type Owner, UnreadableEvent } from "../events/bodies.ts";
import { IS_ITS_EVENT, isSubscription, STATE } from "../subscriptions/conditions.ts";
import { ROTATION_MS } from "../subscriptions/rotation.ts";
import { openSigner } from "../subscriptions/secrets.ts";
import { dataKeyOf } from "../workspaces/data-keys.ts";
import type { DeliveryDetails, DeliveryView } from "./views.ts";

/** Maximum deliveries that one page of a filtered list examines. */
export const DELIVERIES_LOOKED_THROUGH = 2_000;

/** Which deliveries to list; what is absent or null admits all. */
export interface DeliveryFilter {
  state?: DeliveryState | null | undefined;
  type?: WebhookEvent | null | undefined;
  /** Of the last attempt: an HTTP status, a class of them, such as `5xx`, or `none` if it had no answer. */
  status?: number | StatusClass | null | undefined;
  /** When their events were recorded: Unix milliseconds; `until` is not included. */
  since?: number | null | undefined;
  until?: number | null | undefined;
  eventId?: string | null | undefined;
  /** The lead that their event announces. */
  leadId?: string | null | undefined;
}

export const StatusClass = z.enum(["1xx", "2xx", "3xx", "4xx", "5xx", "none"]);
type StatusClass = z.infer<typeof StatusClass>;

function hasStatus(status: number | StatusClass): SQL {
  if (typeof status === "number") return eq(deliveries.lastStatus, status);
  if (status === "none") return sql`${deliveries.lastOutcome} <> 'answered'`;
  return sql`${deliveries.lastStatus} / 100 = ${Number(status[0])}`;
}

const { eventId, settledAt, lastAt, lastOutcome, lastStatus, lastDurationMs } = deliveries;

/** What to select of a subscription's deliveries. */
const SHOWN = {
  ...{ eventId, settledAt, lastAt, lastOutcome, lastStatus, lastDurationMs },
  state: STATE.as("shown_state"),
  type: events.type,
  createdAt: events.createdAt,
  attempts: sql<number>`(${deliveries.attempts} + ${deliveries.earlierAttempts})`.as("made"),
  // When its post may start: the subscription may wait for longer.
  dueAt: sql<number>`max(${deliveries.dueAt}, ${subscriptions.nextAt})`.as("next_due"),
};

type DeliveryRow = Pick<
  typeof deliveries.$inferSelect & typeof events.$inferSelect,
  keyof typeof SHOWN
>;

const { url, disabledAt, sealedSecret, earlierSecrets, rotatedAt } = subscriptions;

/**
 * One page of a subscription's deliveries, newest first. Without a filter, it reads the rows it shows
 * plus one, each with its event. With a filter, it also reads a limited number of rows that do not
 * match: a page may be short or empty and still have a next one.
 */
export async function listHistory(
  db: Database,
  webhookId: string,
  filter: DeliveryFilter,
  { limit, after }: PageRequest,
): Promise<Listing<DeliveryView>> {
  const { subscriptionId, eventId } = deliveries;
  const { state, type, status, since, until, leadId } = filter;
  // These bound what is read: ids are sorted by time, and an event has one delivery.
  const isOnPage = and(
    eq(subscriptionId, webhookId),
    after ? lt(eventId, after.id) : undefined,
    since == null ? undefined : gte(eventId, eventIdAt(since)),
    until == null ? undefined : lt(eventId, eventIdAt(until)),
    filter.eventId ? eq(eventId, filter.eventId) : undefined,
    leadId
      ? sql`${eventId} = (SELECT ${leads.eventId} FROM ${leads} WHERE ${leads.id} = ${leadId})`
      : undefined,
  );
  const last = qb
    .select({ id: eventId })
    .from(deliveries)
    .where(isOnPage)
    .orderBy(desc(eventId))
    .limit(1)
    .offset(DELIVERIES_LOOKED_THROUGH - 1);
  const isFiltered = Boolean(state || type || status);
  const { bound, found } = await read(db, {
    bound: isFiltered ? last : undefined,
    found: qb
      .select(SHOWN)
      .from(subscriptions)
      .crossJoin(deliveries)
      // CROSS JOIN makes SQLite walk the deliveries in order, whatever it estimates about events.
      .crossJoin(events)
      .where(
        and(
          IS_ITS_EVENT,
          isSubscription(webhookId),
          isOnPage,
          isFiltered ? gte(eventId, sql`coalesce(${last}, '')`) : undefined,
          state ? eq(STATE, state) : undefined,
          type ? eq(events.type, type) : undefined,
          status ? hasStatus(status) : undefined,
        ),
      )
      .orderBy(desc(eventId))
      .limit(limit + 1),
  });
  const order = { at: events.createdAt, id: eventId };
  const listing = mapItems(toListing(found, limit, order), toView);
  // Resume after the last row that was examined.
  const resumeAt = bound?.[0];
  return !listing.next && resumeAt ? { ...listing, next: { at: 0, id: resumeAt.id } } : listing;
}

/**
 * One delivery with everything that is stored about it, at most `ATTEMPTS_KEPT` attempts and a success.
 *
 * @throws InputError if there is none.
 */
export async function findDelivery(
  db: Database,
  env: Pick<Env, "ENCRYPTION_KEYS">,
  webhookId: string,
  eventId: string,
): Promise<DeliveryDetails> {
  const { at, outcome, status, durationMs } = attempts;
  const {
    found: [row],
    stored,
  } = await read(db, {
    found: qb
      .select({
        ...SHOWN,
        ...BODY,
        ...{ url, disabledAt, sealedSecret, earlierSecrets, rotatedAt },
        workspaceId: events.workspaceId,
        dataKey: dataKeyOf(events.workspaceId),
      })
      .from(subscriptions)
      .innerJoin(deliveries, eq(deliveries.subscriptionId, subscriptions.id))
      .innerJoin(events, IS_ITS_EVENT)
      .where(and(isSubscription(webhookId), eq(deliveries.eventId, eventId))),
    stored: qb
      .select({
        ...{ at, outcome, status, durationMs },
        response: toJsonValue(attempts.response) as SQL<string | null>,
      })
      .from(attempts)
      .where(and(eq(attempts.subscriptionId, webhookId), eq(attempts.eventId, eventId)))
      .orderBy(attempts.attempt),
  });
  if (!row) throw unknownInput("eventId", "no such delivery to this subscription");
  const keys = env.ENCRYPTION_KEYS;
  const [view, owner] = [toView(row), { subscriptionId: webhookId, eventId }];
  const body = await makeBody(keys, row, row).catch((error: unknown) => {
    if (error instanceof UnreadableEvent) return null;
    throw error;
  });
  const key = await openDataKey(keys, row.workspaceId, row.dataKey);
  // A success is stored in the row of its delivery.
  const success = row.state === "delivered" ? view.lastAttempt : null;
  const log = [
    ...stored.map((attempt) => ({ ...attempt, at: isoTime(attempt.at) })),
    ...(success ? [{ ...success, response: null }] : []),
  ];
  const headersAt = async (time: string) => ({
    ...HEADERS,
    [WEBHOOK_HEADER]: webhookId,
    ...(await signaturesAt(env, webhookId, row, eventId, body, Date.parse(time))),
    ...(row.state === "test" ? TEST_HEADER : {}),
  });
  const shown = log.map(async (attempt) => ({
    ...attempt,
    response: await openResponse(key, owner, attempt.response),
    request: wasSent(attempt.outcome) ? { headers: await headersAt(attempt.at) } : null,
  }));
  const attemptLog = await Promise.all(shown);
  const isDisabled = row.disabledAt !== null;
  return { ...view, url: row.url, isDisabled, attemptLog, body: body ?? "" };
}

const wasSent = (outcome: string) => outcome !== "refused" && outcome !== "unreadable";

type Secrets = Owner &
  Pick<typeof subscriptions.$inferSelect, "sealedSecret" | "earlierSecrets" | "rotatedAt">;

/**
 * The headers that signed a body at a time. None if the secret was rotated since, or cannot be decrypted, or
 * the body does not exist any more.
 */
async function signaturesAt(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  webhookId: string,
  { rotatedAt, earlierSecrets, ...current }: Secrets,
  eventId: string,
  body: string | null,
  time: number,
): Promise<Record<string, string>> {
  if (body === null || (rotatedAt !== null && time < rotatedAt + ROTATION_MS)) return {};
  const signing = (earlierSecrets ?? []).filter(({ until }) => until > time);
  const secrets = { ...current, earlierSecrets: signing.map(({ sealedSecret }) => sealedSecret) };
  const signer = await openSigner(env, webhookId, secrets).catch(() => null);
  return (await signer?.(eventId, body, time)) ?? {};
}

function toView(row: DeliveryRow): DeliveryView {
  const { eventId, type, state, lastAt, lastOutcome } = row;
  return {
    ...{ eventId, type },
    createdAt: isoTime(row.createdAt),
    ...{ state, attempts: row.attempts },
    dueAt: state === "pending" ? isoTime(row.dueAt) : null,
    settledAt: isoTimeOrNull(row.settledAt),
    lastAttempt:
      lastOutcome === null || lastAt === null
        ? null
        : {
            at: isoTime(lastAt),
            outcome: lastOutcome,
            status: row.lastStatus,
            durationMs: row.lastDurationMs,
          },
  };
}
