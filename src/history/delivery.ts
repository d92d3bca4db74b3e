import { and, eq, type SQL } from "drizzle-orm";
import { unknownInput } from "../contract/input.ts";
import { isoTime } from "../contract/time.ts";
import { qb, toJsonValue } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { attempts, deliveries, type EarlierSecret, events, subscriptions } from "../db/schema.ts";
import { HEADERS, TEST_HEADER, WEBHOOK_HEADER } from "../delivery/post.ts";
import { openResponse } from "../delivery/response.ts";
import { openSigner } from "../endpoints/secrets.ts";
import { BODY, makeBody, UnreadableEvent } from "../events/bodies.ts";
import { ROTATION_MS } from "../subscriptions/rotation.ts";
import { isSubscription } from "../subscriptions/subscriptions.ts";
import { openDataKey, sealedDataKeyOf, type WorkspaceKey } from "../workspaces/data-keys.ts";
import { DELIVERY_COLUMNS, toView } from "./deliveries.ts";
import { readSubjects } from "./subject.ts";
import type { DeliveryDetails } from "./views.ts";

/**
 * Reads one delivery with everything that is stored about it: up to `ATTEMPTS_KEPT` attempts, and the success.
 *
 * @throws InputError if there is no such delivery.
 */
export async function findDelivery(
  db: Database,
  env: Pick<Env, "ENCRYPTION_KEYS">,
  webhookId: string,
  eventId: string,
): Promise<DeliveryDetails> {
  const {
    found: [row],
    stored,
  } = await query(db, {
    found: qb
      .select({
        ...DELIVERY_COLUMNS,
        ...BODY,
        url: subscriptions.url,
        disabledAt: subscriptions.disabledAt,
        sealedSecret: subscriptions.sealedSecret,
        earlierSecrets: subscriptions.earlierSecrets,
        rotatedAt: subscriptions.rotatedAt,
        workspaceId: events.workspaceId,
        sealedDataKey: sealedDataKeyOf(events.workspaceId),
      })
      .from(subscriptions)
      .innerJoin(deliveries, eq(deliveries.subscriptionId, subscriptions.id))
      .innerJoin(
        events,
        and(eq(events.workspaceId, deliveries.workspaceId), eq(events.id, deliveries.eventId)),
      )
      .where(and(isSubscription(webhookId), eq(deliveries.eventId, eventId))),
    stored: qb
      .select({
        at: attempts.at,
        outcome: attempts.outcome,
        status: attempts.status,
        durationMs: attempts.durationMs,
        response: toJsonValue(attempts.response) as SQL<string | null>,
      })
      .from(attempts)
      .where(and(eq(attempts.subscriptionId, webhookId), eq(attempts.eventId, eventId)))
      .orderBy(attempts.attempt),
  });
  if (!row) throw unknownInput("eventId", "no such delivery of this webhook");
  const keys = env.ENCRYPTION_KEYS;
  const key = await openDataKey(keys, row.workspaceId, row.sealedDataKey);
  const [subject = null] = await readSubjects(db, key, row.workspaceId, [row]);
  const view = toView(row, subject);
  const body = await makeBody(keys, row, row).catch((error: unknown) => {
    if (error instanceof UnreadableEvent) return null;
    throw error;
  });
  // A success is stored in the row of its delivery, and among the attempts, too, if a replay of it was stopped.
  const isInRow = row.state === "delivered" && stored.at(-1)?.at !== row.lastAt;
  const success = isInRow ? view.lastAttempt : null;
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
    response: await openResponse(key, { subscriptionId: webhookId, eventId }, attempt.response),
    request: wasSent(attempt.outcome) ? { headers: await headersAt(attempt.at) } : null,
  }));
  const attemptLog = await Promise.all(shown);
  const isDisabled = row.disabledAt !== null;
  return { ...view, url: row.url, isDisabled, attemptLog, body: body ?? "" };
}

const wasSent = (outcome: string) => outcome !== "refused" && outcome !== "unreadable";

type Secrets = WorkspaceKey &
  Pick<typeof subscriptions.$inferSelect, "sealedSecret" | "earlierSecrets" | "rotatedAt">;

/**
 * Recomputes the headers that signed a body at a given time. Returns none if the secret was rotated since then or
 * cannot be decrypted, or if the body was erased. In the first two seconds after a rotation or the end of an overlap, a
 * request may have been signed as before, so it returns none either.
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
  const hasJustEnded = ({ until }: EarlierSecret) => until <= time && time < until + ROTATION_MS;
  if (earlierSecrets?.some(hasJustEnded)) return {};
  const signing = (earlierSecrets ?? []).filter(({ until }) => until > time);
  const secrets = { ...current, earlierSecrets: signing.map(({ sealedSecret }) => sealedSecret) };
  const signer = await openSigner(env, webhookId, secrets).catch(() => null);
  return (await signer?.(eventId, body, time)) ?? {};
}
