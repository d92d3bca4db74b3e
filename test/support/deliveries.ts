import {
  createExecutionContext,
  createMessageBatch,
  getQueueResult,
  waitOnExecutionContext,
} from "cloudflare:test";
import { env } from "cloudflare:workers";
import { createHmac } from "node:crypto";
import { and, count, eq } from "drizzle-orm";
import { vi } from "vitest";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import { randomId } from "../../src/contract/ids.ts";
import { RETRY_WAITS_SECONDS } from "../../src/contract/limits.ts";
import { isoTime } from "../../src/contract/time.ts";
import { commit, connect, type D1Client } from "../../src/db/client.ts";
import {
  type Administrator,
  deliveries,
  type EmailKind,
  PRIORITY,
  subscriptions,
  workspaces,
} from "../../src/db/schema.ts";
import type { Outcome } from "../../src/delivery/policy.ts";
import { CONCURRENCY_MAX, INITIAL_STATE } from "../../src/delivery/policy.ts";
import { createSender, type PreparedDelivery } from "../../src/delivery/send.ts";
import {
  noteMessage,
  type QueueName,
  queueOf,
  type WakeUp,
  type WakeUpMessage,
} from "../../src/delivery/wake.ts";
import { consume } from "../../src/dispatch/consumer.ts";
import { type DispatchPorts, deliver } from "../../src/dispatch/deliver.ts";
import type { EmailMessage } from "../../src/email/queue.ts";
import { sealSecret } from "../../src/endpoints/secrets.ts";
import { mintSecret } from "../../src/endpoints/signature.ts";
import { announce, type Draft, draftEvent } from "../../src/events/outbox.ts";
import worker from "../../src/index.ts";
import { isNewLead } from "../../src/recording/lead-recording.ts";
import { showPerson } from "../../src/records/person.ts";
import { type Range, sendAgain } from "../../src/replay/replay.ts";
import { insertSubscription } from "../../src/subscriptions/creation.ts";
import { loadDataKeyToWrite } from "../../src/workspaces/data-keys.ts";
import { setUp } from "./api.ts";
import { interposed } from "./interposed.ts";
import { DATABASE, db, inDatabase, WORKSPACE_DB } from "./placement.ts";
import type { Received } from "./subscribers.ts";

/** The delay between the first two attempts of a delivery. */
export const FIRST_WAIT_MS = (RETRY_WAITS_SECONDS[0] ?? 0) * 1000;

/**
 * The lines that a subscription's pending deliveries may stand in (`src/delivery/due.ts`). A look for what is due reads
 * one or two rows of each, so the rows that a dispatch reads grow with every event type.
 */
export const LINES = WebhookEvent.options.length * Object.keys(PRIORITY).length;

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/** A workspace without a key. */
export async function createWorkspace(
  adminEmails: Administrator[] = ["admin@example.com"],
): Promise<string> {
  const { workspaceId } = await setUp.createWorkspace({
    name: "Agence",
    adminEmails,
    database: DATABASE,
  });
  return workspaceId;
}

let hosts = 0;

/** The URL of a separate subscriber that answers as `behaviour` says (see subscribers.ts). */
export function subscriberUrl(behaviour = "ok"): string {
  return `https://${behaviour}-${++hosts}-${crypto.randomUUID()}.example/hooks/in?token=t0ken`;
}

/** A subscription as `POST /webhooks` creates it, but at a given time. */
export async function subscribe(
  workspaceId: string,
  { url = subscriberUrl(), events = ["lead.created"] as WebhookEvent[], createdAt = 0 } = {},
): Promise<{ id: string; url: string; secret: string }> {
  const id = randomId("webhook");
  const secret = mintSecret();
  const key = await sealedDataKeyOf(workspaceId);
  const sealedSecret = await sealSecret(key, id, secret);
  await commit(db, insertSubscription({ id, workspaceId, url, events, sealedSecret, createdAt }));
  return { id, url, secret };
}

/** Creates subscriptions of a workspace, even beyond its limit, in one transaction. Returns their ids. */
export async function subscribeMany(
  workspaceId: string,
  count: number,
  values: Partial<typeof subscriptions.$inferInsert> = {},
): Promise<string[]> {
  const key = await sealedDataKeyOf(workspaceId);
  const rows = await Promise.all(
    Array.from({ length: count }, async () => {
      const id = randomId("webhook");
      const sealedSecret = await sealSecret(key, id, mintSecret());
      const events: WebhookEvent[] = ["lead.created"];
      return { id, workspaceId, url: subscriberUrl(), events, sealedSecret, createdAt: 0 };
    }),
  );
  const inserts = rows.map((row) => db.insert(subscriptions).values({ ...row, ...values }));
  const [first, ...others] = inserts;
  if (first) await db.batch([first, ...others]);
  return rows.map(({ id }) => id);
}

function sealedDataKeyOf(workspaceId: string) {
  return loadDataKeyToWrite(connect(WORKSPACE_DB), env.ENCRYPTION_KEYS, workspaceId);
}

/** Drafts of events about new leads. */
export function draftLeads(count: number, now: number, customFields = {}): Draft[] {
  return Array.from({ length: count }, (_, i) => {
    const lead = {
      id: randomId("lead"),
      source: "crm" as const,
      agent_id: "agt_1",
      ...showPerson({
        name: `Zoë “${i}” 🌻`,
        email: "zoe@example.com",
        phone: "+33600000000",
        customFields,
      }),
      created_at: isoTime(now),
    };
    return draftEvent("lead.created", lead, now);
  });
}

/** The statements that announce new leads. */
export function announcement(workspaceId: string, drafts: Draft[], now: number) {
  return announce(workspaceId, "lead.created", drafts, (id) => isNewLead(workspaceId, id), now);
}

/** Announces new leads at `now`, oldest first, and sends no wake-up message, so that no queue interferes. */
export async function announceLeads(
  workspaceId: string,
  count: number,
  now: number,
  customFields = {},
): Promise<Draft[]> {
  const drafts = draftLeads(count, now, customFields);
  await commit(db, announcement(workspaceId, drafts, now));
  return drafts;
}

/** The delivery rows of a subscription, in the order they were written. */
export function deliveriesTo(subscriptionId: string) {
  return db
    .select()
    .from(deliveries)
    .where(eq(deliveries.subscriptionId, subscriptionId))
    .orderBy(deliveries.eventId);
}

/** The only delivery row of a subscription. */
export async function deliveryTo(subscriptionId: string) {
  const [row, ...others] = await deliveriesTo(subscriptionId);
  if (!row || others.length > 0) throw new Error(`${others.length} deliveries beside the first`);
  return row;
}

/** Its pending deliveries, in the order in which they are due: ids, and milliseconds from `now`. */
export async function scheduleOf(subscriptionId: string, now: number) {
  const rows = (await deliveriesTo(subscriptionId)).filter(({ state }) => state === "pending");
  return rows
    .toSorted((a, b) => a.dueAt - b.dueAt)
    .map(({ eventId, dueAt }): [eventId: string, dueIn: number] => [eventId, dueAt - now]);
}

/** The number of a subscription's deliveries in each state. */
export async function statesOf(subscriptionId: string): Promise<Record<string, number>> {
  const states = await db
    .select({ state: deliveries.state, length: count() })
    .from(deliveries)
    .where(eq(deliveries.subscriptionId, subscriptionId))
    .groupBy(deliveries.state);
  return Object.fromEntries(states.map(({ state, length }) => [state, length]));
}

/** The row of a subscription. */
export async function subscriptionRow(id: string) {
  const [row] = await db.select().from(subscriptions).where(eq(subscriptions.id, id));
  if (!row) throw new Error(`no subscription ${id}`);
  return row;
}

/** Changes the row of a subscription. */
export async function setSubscription(
  id: string,
  values: Partial<typeof subscriptions.$inferInsert>,
): Promise<void> {
  await db.update(subscriptions).set(values).where(eq(subscriptions.id, id));
}

/** The columns of a subscription whose leads have failed since a time, with a circuit that is open until another. */
export function failingSince(since: number, failures: number, probeAt = 1) {
  const circuit = {
    rejected: [],
    step: probeAt > 0 ? failures : 0,
    probeAt,
    since,
    outcome: "answered",
    status: 500,
  };
  return { circuits: { "lead.created": circuit }, failingSince: since, failures };
}

/** Changes the deliveries to a subscription: of one event, or all. */
export async function setDeliveries(
  subscriptionId: string,
  values: Partial<typeof deliveries.$inferInsert>,
  eventId?: string,
): Promise<void> {
  const isMeant = eventId === undefined ? undefined : eq(deliveries.eventId, eventId);
  await db
    .update(deliveries)
    .set(values)
    .where(and(eq(deliveries.subscriptionId, subscriptionId), isMeant));
}

/** Reads what was announced last about a subscription, in e-mails of one kind; undefined for nothing. */
export async function announcedOf(subscriptionId: string, kind: EmailKind = "disabled") {
  const { announced } = subscriptions;
  const found = db.select({ announced }).from(subscriptions);
  const [row] = await found.where(eq(subscriptions.id, subscriptionId));
  return row?.announced[kind];
}

/** Reads the requests that an endpoint has received, oldest first. */
export async function receivedBy({ url }: { url: string }): Promise<Received[]> {
  const answer = await fetch(`https://${new URL(url).host}/received`);
  return answer.json();
}

/** Makes the arguments of an attempt to send the first of the events, announced at `now`. */
export async function postOf(
  { id, url, workspaceId }: { id: string; url: string; workspaceId: string },
  [draft]: Draft[],
  now: number,
  sender = createSender(env),
): Promise<Parameters<DispatchPorts["attempt"]>> {
  const { id: eventId, body } = draft as Draft;
  const event = { createdAt: now, storedBody: body ?? "", leadId: null, lead: null };
  const { sealedSecret } = await subscriptionRow(id);
  const sealed = { subscriptionId: id, sealedSecret, earlierSecrets: [], sealedHeaders: null };
  const [workspace] = await db.select().from(workspaces).where(eq(workspaces.id, workspaceId));
  const target = { workspaceId, sealedDataKey: workspace?.sealedDataKey ?? null, url, ...sealed };
  const row = {
    ...event,
    eventId,
    type: "lead.created" as const,
    priority: PRIORITY.untried,
    stepsUsed: 0,
    attemptsMade: 0,
    firstAt: null,
    dueAt: now,
  };
  const [claimed] = sender.prepare([row], target);
  return [claimed as PreparedDelivery, target, now];
}

/** A complete response of a subscriber. */
export function answered(status: number, retryAfterSeconds: number | null = null): Outcome {
  return { kind: "answered", status, retryAfterSeconds };
}

/** The ports of a dispatch, at a fixed time. */
export function portsAt(
  now: number | (() => number),
  attempt: DispatchPorts["attempt"] | Outcome,
): DispatchPorts {
  return {
    now: typeof now === "function" ? now : () => now,
    random: () => 0,
    prepare: createSender(env).prepare,
    attempt: typeof attempt === "function" ? attempt : async () => attempt,
  };
}

/**
 * Dispatches at `now`, by default in the queue of the first subscription; every attempt ends as `attempt` says. Returns
 * the wake-up messages to send next.
 */
export async function dispatchAt(
  now: number | (() => number),
  subscriptionIds: string[],
  attempt: DispatchPorts["attempt"] | Outcome,
  queue?: QueueName,
  client: D1Client = WORKSPACE_DB,
): Promise<WakeUp[]> {
  const [first = ""] = subscriptionIds;
  const [row] = await db.select().from(subscriptions).where(eq(subscriptions.id, first));
  const own = queueOf(row ?? INITIAL_STATE);
  const connections = Math.floor(CONCURRENCY_MAX / subscriptionIds.length);
  const wakeUps = await Promise.all(
    subscriptionIds.map(async (id) => {
      const database = connect(client);
      const ports = portsAt(now, attempt);
      const wakeUp = await deliver(database, id, queue ?? own, ports, connections);
      if (wakeUp) await noteMessage(database, wakeUp);
      return wakeUp;
    }),
  );
  return wakeUps.filter((wakeUp) => wakeUp !== null);
}

/** Dispatches like `dispatchAt`, on another client of the database. */
export function dispatchOn(client: D1Client, ...[now, ids, attempt, queue]: DispatchArguments) {
  return dispatchAt(now, ids, attempt, queue, client);
}
type DispatchArguments = Parameters<typeof dispatchAt>;

/** Sends events again, as a call at `now` does. Returns how many it scheduled. */
export async function redeliver(
  subscriptionId: string,
  wanted: readonly string[] | Range,
  now: number,
): Promise<number> {
  const range = "since" in wanted ? wanted : { eventIds: wanted };
  const owed = await sendAgain(db, subscriptionId, range, now);
  if (!owed) throw new Error("nothing is owed to it");
  return owed.count;
}

/**
 * Starts a dispatch that has claimed the due deliveries, and whose requests stay in flight until the test ends them.
 */
export async function heldDispatch(now: number | (() => number), subscriptionId: string) {
  const claimed = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<Outcome>();
  const attempt = () => {
    claimed.resolve();
    return answer.promise;
  };
  const run = dispatchAt(now, [subscriptionId], attempt);
  await claimed.promise;
  const finish = (outcome: Outcome) => {
    answer.resolve(outcome);
    return run;
  };
  return { finish };
}

/** Makes an endpoint that stores its requests, and responds to each with the result of `answer`. */
export function subscriber(
  answer: (delivery: PreparedDelivery) => Outcome | Promise<Outcome> = () => answered(200),
) {
  const posts: string[] = [];
  const attempt = async (delivery: PreparedDelivery) => {
    posts.push(delivery.eventId);
    return answer(delivery);
  };
  return { posts, attempt };
}

/** Makes a new subscription, the only one of its workspace, with `count` pending events since `now`. */
export async function owed(
  count: number,
  now: number,
  { behaviour = "ok", customFields = {} } = {},
) {
  const workspaceId = await createWorkspace();
  const subscription = await subscribe(workspaceId, { url: subscriberUrl(behaviour) });
  const drafts = await announceLeads(workspaceId, count, now, customFields);
  return { workspaceId, ...subscription, drafts };
}

/** Makes new subscriptions, each the only one of its workspace and with `count` pending events since `now`. */
export async function owedToMany(subscribers: number, count: number, now: number) {
  const workspaceId = await createWorkspace();
  const ids = await subscribeMany(workspaceId, subscribers);
  await announceLeads(workspaceId, count, now);
  return ids;
}

/** Fails one attempt at each of the times, ignoring how long circuits are open. */
export async function failAt(
  subscriptionId: string,
  times: number[],
  outcome = answered(503),
): Promise<void> {
  for (const time of times) {
    await allowProbes(subscriptionId);
    await dispatchAt(time, [subscriptionId], outcome);
  }
}

/** Lets the next probes of a subscription start now. */
export async function allowProbes(subscriptionId: string): Promise<void> {
  const { circuits } = await subscriptionRow(subscriptionId);
  const passed = Object.entries(circuits).map(([type, circuit]) => [
    type,
    { ...circuit, probeAt: Math.min(circuit.probeAt, 1) },
  ]);
  await setSubscription(subscriptionId, { circuits: Object.fromEntries(passed) });
}

/** Sets the clock of the code under test, which then stands still until the test ends. */
export function jumpTo(now: number): void {
  vi.useFakeTimers({ toFake: ["Date"], now });
}

/** A message as sent by a queue's producer. */
export interface Sent extends WakeUpMessage {
  delaySeconds: number;
}

/**
 * The deployment with producers that keep what they are given, so that no consumer of the runtime
 * interferes; `overrides` replace other bindings.
 */
export function isolated(overrides: Partial<Env> = {}) {
  const fast: Sent[] = [];
  const slow: Sent[] = [];
  const emails: EmailMessage[] = [];
  const keepIn = (sent: Sent[]) =>
    ({
      sendBatch: async (messages: MessageSendRequest<WakeUpMessage>[]) => {
        for (const { body, delaySeconds = 0 } of messages) sent.push({ ...body, delaySeconds });
      },
    }) as unknown as Queue;
  const bindings: Env = {
    ...env,
    DELIVERIES: keepIn(fast),
    SLOW_DELIVERIES: keepIn(slow),
    EMAILS: {
      sendBatch: async (messages: MessageSendRequest<EmailMessage>[]) => {
        for (const { body } of messages) emails.push(body);
      },
    } as unknown as Queue,
    ...inDatabase(overrides),
  };
  return { env: bindings, fast, slow, emails };
}

/** A queue that accepts nothing. */
export const REFUSING_QUEUE = {
  sendBatch: async () => {
    throw new Error("Queue sendBatch failed: overloaded");
  },
} as unknown as Queue;

/** The result of a batch with every message acknowledged. */
export const ACKNOWLEDGED = { outcome: "ok", retryMessages: [] };

/**
 * Passes a batch of messages to the Worker, or, with attempts of the test's own, to its queue
 * consumer. Returns what happened to the messages once all is done.
 */
export async function consumeBodies(
  bodies: unknown[],
  bindings: Env,
  attempt?: DispatchPorts["attempt"],
): Promise<Awaited<ReturnType<typeof getQueueResult>>> {
  const timestamp = new Date();
  const messages = bodies.map((body, i) => ({
    id: `message-${i}`,
    timestamp,
    attempts: 1,
    body,
  }));
  const batch = createMessageBatch("renamed-by-whoever-deploys", messages);
  const context = createExecutionContext();
  if (attempt)
    await consume(batch.messages, bindings, context, { ...createSender(bindings), attempt });
  else await worker.queue(batch, bindings, context);
  await waitOnExecutionContext(context);
  return getQueueResult(batch, context);
}

/** Wakes the consumer for the subscriptions. */
export function consumeFor(
  subscriptionIds: string[],
  bindings: Env,
  attempt?: DispatchPorts["attempt"],
  queue: QueueName = "fast",
): Promise<Awaited<ReturnType<typeof getQueueResult>>> {
  const bodies = subscriptionIds.map((subscriptionId) => ({
    subscriptionId,
    queue,
    database: DATABASE,
  }));
  return consumeBodies(bodies, bindings, attempt);
}

/**
 * The real database with counted round trips; `before` and `after` get the round trip's number,
 * from 1, and its SQL, and what they throw is thrown to the caller.
 */
export function observedDatabase({
  before = () => {},
  after = () => {},
}: {
  before?: (trip: number, sql: string[]) => void | Promise<void>;
  after?: (trip: number) => void | Promise<void>;
} = {}) {
  const trips: string[][] = [];
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const trip = trips.push(texts);
    await before(trip, texts);
    const result = await go();
    await after(trip);
    return result;
  });
  return { DB, trips };
}

/** A transient error of D1: the transaction may have been committed. */
export const CONNECTION_LOST = new Error("D1_ERROR: Network connection lost.");
/** An error of D1 that is not retried. */
export const BROKEN = new Error("D1_ERROR: disk I/O error");

/** Throws at one round trip of an `observedDatabase`. */
export function failAtTrip(failing: number, error = CONNECTION_LOST) {
  return (trip: number) => {
    if (trip === failing) throw error;
  };
}

/** Both signatures of a delivery, computed without the code under test. */
export function expectedSignatures(
  secret: string,
  eventId: string,
  timestamp: number | string,
  body: string,
) {
  const sign = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text);
  const decoded = Buffer.from(secret.replace("whsec_", ""), "base64");
  const service = sign(secret, `${timestamp}.${body}`).digest("hex");
  const standard = sign(decoded, `${eventId}.${timestamp}.${body}`).digest("base64");
  return { service: `t=${timestamp},v1=${service}`, standard: `v1,${standard}` };
}
