import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import {
  DISABLE_AFTER_MS,
  POST_TIMEOUT_MS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SPACED_FROM_EVENTS,
} from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../../src/contract/time.ts";
import type { Deployment } from "./deployment.ts";
import {
  checkDisabled,
  checkHistory,
  checkOnce,
  checkRetryAfter,
  checkSchedule,
  checkSpacing,
} from "./endpoint-invariants.ts";
import { checkCommit, checkWrites } from "./invariants.ts";
import {
  KINDS,
  type OfferedEvent,
  RETRY_AFTERS,
  type Response,
  type Script,
} from "./subscribers.ts";
import { Violation } from "./world.ts";

/*
 * Worlds of one endpoint, in which nothing fails but what the endpoint rejects. Without other faults, they show what
 * flow control promises: an event that the endpoint would accept arrives within minutes, whatever it rejects.
 * No sweep helps: each delivery must be woken by the one before it.
 */

/** An accepted event is delivered within this time, for each event type, if the endpoint responds at once... */
const ACCEPTED_WITHIN_MS = 3 * MINUTE_MS;
/** ...and if requests of another type time out, and are spaced by ten minutes. */
const ACCEPTED_BESIDE_TIMEOUTS_MS = 15 * MINUTE_MS;
/**
 * How much longer an outage is felt, if the endpoint responded, or did not. A few rejected events are not spaced, so no
 * retry notices the end of their outage before their retry schedule does, or before the next event is recorded.
 */
const FELT_MS = { responds: 5 * MINUTE_MS, unavailable: 10 * MINUTE_MS + POST_TIMEOUT_MS };
/** The time between two events that are recorded after an outage. */
const RECORDED_EVERY_MS = 10 * MINUTE_MS;
/** For each event of a backlog: six are sent at once, each in half a second, and rounds and queues take as long again. */
const SENT_WITHIN_MS = 166;
/** For what queues and dispatches take. */
const TOLERANCE_MS = MINUTE_MS;

/** The most timers that expire, in a world that makes progress, before something is sent. */
const IDLE_STEPS_MAX = 20_000;

const AGENT = { reference: "agent", name: "Agent" };
const CHUNK = 100;

/** The endpoint rejects... */
const SCENARIOS = [
  aShare,
  aType,
  aTypeForDays,
  anImport,
  oneEvent,
  everythingForAWhile,
  everything,
  nothing,
  aTypeThatIsRemoved,
  whatComesWhileItIsBusy,
  whatIsResent,
  everythingButAMinute,
  everythingUntilItMoves,
];

/** What a scenario works with. */
type Stage = Awaited<ReturnType<typeof openStage>>;

/** The life of such a world. @throws Violation if flow control breaks a promise. */
export async function liveWithOneEndpoint(deployment: Deployment, seed: number): Promise<void> {
  const { world, store, subscribers } = deployment;
  world.faults = false;
  store.onCommit = () => world.guard(() => checkCommit(store));
  const scenario = SCENARIOS[seed % SCENARIOS.length] as (typeof SCENARIOS)[number];
  world.note(`an endpoint rejects ${scenario.name}`);
  let hasEnded = false;
  openStage(deployment)
    .then(scenario)
    .then(
      () => (hasEnded = true),
      (error) => world.fail(error),
    );
  let steps = 0;
  let sent = 0;
  await world.run(() => {
    steps = subscribers.posts.length > sent ? 0 : steps + 1;
    sent = subscribers.posts.length;
    if (steps > IDLE_STEPS_MAX) throw new Violation("dispatches wake each other, and send nothing");
    return hasEnded;
  });
  const { posts, replayedAt, resends } = subscribers;
  const skewMs = 2 * world.isolateSkewMs;
  checkSpacing(posts, replayedAt, skewMs);
  checkRetryAfter(posts, replayedAt, skewMs);
  checkOnce(posts, resends);
  checkHistory(store, posts);
  checkDisabled(store, posts);
  checkWrites(store, posts);
}

async function aShare({ world, subscribe, record, pass, expectDelivered }: Stage) {
  const { chance } = world;
  // More rejected events than one a minute outrun the spacing, unless others end the streak soon.
  const [share, seconds] = chance.pick([
    [0.3, chance.between(2, 60)],
    [0.5, chance.between(20, 60)],
    [0.95, chance.between(60, 300)],
  ] as const);
  // After more rejected events in a row than these, which chance alone may bring, requests are up to a minute apart, so
  // events wait for each other.
  const mostInRow = share < 0.9 ? 10 : Number.POSITIVE_INFINITY;
  let inRow = 0;
  const rejected = new Map<string, boolean>();
  const status = pickRejection(world);
  const isRejected = ({ id }: OfferedEvent) => {
    const known = rejected.get(id);
    if (known !== undefined) return known;
    const decided = inRow < mostInRow && chance.happens(share);
    inRow = decided ? inRow + 1 : 0;
    rejected.set(id, decided);
    return decided;
  };
  await subscribe((event) => (isRejected(event) ? status : 200), ["lead.created"]);
  for (let i = 0; i < 200; i++) {
    await record("lead.created");
    await pass(seconds * 1000);
  }
  await pass(ACCEPTED_WITHIN_MS);
  expectDelivered((event) => !isRejected(event), ACCEPTED_WITHIN_MS);
}

async function aType({ world, subscribe, record, pass, expectDelivered }: Stage) {
  const { chance } = world;
  const types: readonly WebhookEvent[] = chance.pick([KINDS, ["run.completed", "lead.created"]]);
  const rejected = chance.pick(["run.completed", "lead.created"] as const);
  const others = types.filter((type) => type !== rejected);
  const response = chance.pick([400, 500, 503, "timed_out"] as const);
  // One event that would be accepted fails once.
  let hasFailed = false;
  await subscribe(({ type }) => {
    if (type === rejected) return response;
    if (hasFailed || chance.happens(0.7)) return 200;
    hasFailed = true;
    return 500;
  }, types);
  await record(rejected, chance.pick([1, 200, 1_500]));
  for (let i = 0; i < 100; i++) {
    await pass(chance.between(1, 20) * MINUTE_MS);
    await record(chance.happens(0.5) ? rejected : chance.pick(others));
  }
  const withinMs =
    types.length * (response === "timed_out" ? ACCEPTED_BESIDE_TIMEOUTS_MS : ACCEPTED_WITHIN_MS);
  await pass(withinMs);
  expectDelivered(({ type }) => type !== rejected, withinMs);
}

/** The other type is accepted, but so rare that nothing is for longer than it takes to be disabled. */
async function aTypeForDays({ world, subscribe, record, pass, expectDelivered }: Stage) {
  const status = world.chance.pick([400, 500, 503]);
  const types = ["run.completed", "lead.created"] as const;
  await subscribe(({ type }) => (type === "run.completed" ? status : 200), types);
  await record("lead.created");
  for (let hours = 0; hours < DISABLE_AFTER_MS / HOUR_MS + 10; hours++) {
    await record("run.completed");
    await pass(HOUR_MS);
  }
  await record("lead.created");
  await pass(2 * ACCEPTED_WITHIN_MS);
  expectDelivered(({ type }) => type === "lead.created", 2 * ACCEPTED_WITHIN_MS);
}

async function anImport({ world, subscribe, record, pass, expectDelivered }: Stage) {
  const { chance } = world;
  const status = pickRejection(world);
  let importedAt = Number.POSITIVE_INFINITY;
  const isRejected = ({ committedAt }: OfferedEvent) => committedAt <= importedAt;
  await subscribe((event) => (isRejected(event) ? status : 200), ["lead.created"]);
  await record("lead.created", chance.pick([300, 1_000, 3_000]));
  importedAt = world.now;
  for (let i = 0; i < 50; i++) {
    await pass(chance.between(1, 60) * MINUTE_MS);
    await record("lead.created");
  }
  await pass(ACCEPTED_WITHIN_MS);
  expectDelivered((event) => !isRejected(event), ACCEPTED_WITHIN_MS);
}

/** Beside others that it accepts; the attempts at the rejected one follow the retry schedule. */
async function oneEvent({ world, posts, subscribe, record, pass, expectDelivered }: Stage) {
  const status = pickRejection(world);
  let rejected: string | null = null;
  let isNextRejected = false;
  const script: Script = ({ id }) => {
    if (isNextRejected) rejected = id;
    isNextRejected = false;
    return id === rejected ? status : 200;
  };
  await subscribe(script, ["lead.created"]);
  await record("lead.created");
  await pass(MINUTE_MS);
  isNextRejected = true;
  const waitsMs = RETRY_WAITS_SECONDS.reduce((sum, seconds) => sum + seconds * 1000, 0);
  const until = world.now + waitsMs * (1 + RETRY_JITTER) + HOUR_MS;
  while (world.now < until) {
    await record("lead.created");
    await pass(HOUR_MS);
  }
  expectDelivered(({ id }) => id !== rejected, ACCEPTED_WITHIN_MS);
  const attempts = posts.filter(({ eventId }) => eventId === rejected);
  checkSchedule(attempts, 2 * world.isolateSkewMs);
}

/** An outage, with an event every few minutes, and perhaps thousands at once. */
async function everythingForAWhile({ world, subscribe, record, pass, expectDelivered }: Stage) {
  const { chance } = world;
  const response = chance.pick([500, 503, "unreachable", "timed_out"] as const);
  const minutes = chance.pick([10, 30, 120, 600, 1_500]);
  let isOut = false;
  await subscribe(() => (isOut ? response : 200), ["lead.created", "run.completed"]);
  await record("lead.created");
  await pass(MINUTE_MS);
  isOut = true;
  const endsAt = world.now + minutes * MINUTE_MS;
  const backlog = chance.pick([0, 0, 2_000]);
  await record("run.completed", backlog);
  let recorded = backlog;
  while (world.now < endsAt) {
    await record(chance.pick(["lead.created", "run.completed"]));
    recorded++;
    const everyMs = chance.between(1, 20) * MINUTE_MS;
    await pass(Math.min(everyMs, endsAt - world.now));
  }
  isOut = false;
  for (let i = 0; i < 6; i++) {
    await pass(RECORDED_EVERY_MS);
    await record("lead.created");
  }
  await pass(10 * MINUTE_MS);
  const isSpaced = response !== 500 || recorded >= SPACED_FROM_EVENTS;
  const spacedMs = typeof response === "number" ? FELT_MS.responds : FELT_MS.unavailable;
  const feltMs = isSpaced ? spacedMs : RECORDED_EVERY_MS;
  expectDelivered(() => true, feltMs + backlog * SENT_WITHIN_MS, endsAt);
}

/** A dead endpoint is sent few requests, and its subscription is disabled in the end. */
async function everything({ world, store, posts, subscribe, record, pass }: Stage) {
  const { chance } = world;
  const response = chance.pick([400, 500, 503, "unreachable", "timed_out"] as const);
  await subscribe(() => response, ["lead.created"]);
  await record("lead.created", 300);
  const startedAt = world.now;
  await pass(45_000);
  expectAtMost(20);
  await pass(DAY_MS);
  expectAtMost(typeof response === "number" ? 1_500 : 200);
  while (world.now < startedAt + DISABLE_AFTER_MS + 5 * HOUR_MS) {
    await record("lead.created");
    await pass(HOUR_MS);
  }
  const [subscription] = store.rows<{ disabled_at: number | null }>(
    "SELECT disabled_at FROM subscriptions",
  );
  const lastedMs = (subscription?.disabled_at ?? Number.POSITIVE_INFINITY) - startedAt;
  if (lastedMs < DISABLE_AFTER_MS || lastedMs > DISABLE_AFTER_MS + 5 * HOUR_MS)
    throw new Violation(`a dead endpoint was disabled after ${lastedMs} ms`);

  function expectAtMost(count: number): void {
    if (posts.length > count)
      throw new Violation(
        `a dead endpoint got ${posts.length} posts in ${world.now - startedAt} ms, more than ${count}`,
      );
  }
}

/** Thousands of events at once are sent by several requests at a time. */
async function nothing({ world, subscribe, record, pass, expectDelivered }: Stage) {
  await subscribe(() => 200, ["lead.created", "run.completed"]);
  const count = world.chance.pick([1_000, 2_000, 3_000]);
  await record("lead.created", count / 2);
  await record("run.completed", count / 2);
  await pass(5 * MINUTE_MS);
  expectDelivered(() => true, count * SENT_WITHIN_MS);
}

async function aTypeThatIsRemoved(stage: Stage) {
  const { world, store, subscribe, record, pass, expectDelivered, unlist } = stage;
  const { chance } = world;
  const status = chance.pick([200, 400, 503]);
  let isRemoved = false;
  const script: Script = ({ type }) => (type === "run.completed" || isRemoved ? 200 : status);
  await subscribe(script, ["lead.created", "run.completed"]);
  await Promise.all([record("lead.created", 500), record("run.completed", 500)]);
  await pass(chance.between(0, 20_000));
  await unlist("lead.created");
  isRemoved = true;
  await record("run.completed");
  await pass(10 * MINUTE_MS);
  expectDelivered(({ type }) => type === "run.completed", 10 * MINUTE_MS);
  const [left] = store.rows<{ n: number }>(
    "SELECT count(*) AS n FROM deliveries WHERE state = 'pending'",
  );
  if (left?.n !== 0) throw new Violation(`${left?.n} deliveries of a removed type are pending`);
}

/** It is busy again and again, and says for how long. */
async function whatComesWhileItIsBusy(stage: Stage) {
  const { world, posts, subscribe, record, pass, expectDelivered } = stage;
  const { chance } = world;
  const retryAfters = chance.pick([RETRY_AFTERS, RETRY_AFTERS, [chance.pick(RETRY_AFTERS)]]);
  let isBusy = false;
  const script: Script = () =>
    isBusy && chance.happens(0.9)
      ? { status: chance.pick([429, 503]), retryAfterSeconds: chance.pick(retryAfters) }
      : 200;
  await subscribe(script, ["lead.created", "run.completed"]);
  await record("lead.created", chance.pick([1, 50]));
  for (let i = 0; i < 60; i++) {
    isBusy = chance.happens(0.5);
    await record(chance.pick(["lead.created", "run.completed"]), chance.pick([1, 1, 5, 40]));
    await pass(chance.pick([1_000, 10_000, MINUTE_MS, 30 * MINUTE_MS]));
  }
  isBusy = false;
  const freeAt = world.now;
  await pass(RETRY_AFTER_MAX_SECONDS * 1000 + 10 * MINUTE_MS);
  // What failed in several streaks is due when its own retry schedule says.
  const isDueSoon = ({ id }: OfferedEvent) => {
    const failed = posts.filter(({ eventId, acknowledged }) => eventId === id && !acknowledged);
    return (RETRY_WAITS_SECONDS[failed.length - 1] ?? 0) < RETRY_AFTER_MAX_SECONDS;
  };
  expectDelivered(isDueSoon, RETRY_AFTER_MAX_SECONDS * 1000 + 5 * MINUTE_MS, freeAt);
}

/** Somebody resends events by their ids. Each resend is one attempt, at once, whatever failed before. */
async function whatIsResent(stage: Stage) {
  const { world, store, posts, subscribe, record, pass, resend, expectDelivered } = stage;
  const { chance } = world;
  const response = chance.pick([
    500,
    503,
    "unreachable",
    { status: 503, retryAfterSeconds: 1_800 },
  ] as const);
  let isOut = true;
  await subscribe(() => (isOut ? response : 200), ["lead.created", "run.completed"]);
  await record("lead.created", chance.pick([1, 3, 20]));
  for (let i = 0; i < 40; i++) {
    await pass(chance.between(1, 20) * MINUTE_MS);
    if (chance.happens(0.5)) await record(chance.pick(["lead.created", "run.completed"]));
    if (chance.happens(0.2)) isOut = !isOut;
    const named = store
      .rows<{ id: string }>("SELECT id FROM events ORDER BY id")
      .map(({ id }) => id)
      .filter(() => chance.happens(0.2))
      .slice(0, 100);
    if (named.length === 0 || chance.happens(0.5)) continue;
    const since = world.now;
    const count = await resend(named);
    await pass(80_000);
    let made = 0;
    for (const eventId of named) {
      const own = posts.filter((post) => post.eventId === eventId && post.startedAt >= since);
      const manual = own.filter(({ isManual }) => isManual).length;
      made += manual;
      if (own.length === 0 || manual > 1)
        throw new Violation(`${eventId} was resent once, and got ${manual} attempts for it`);
    }
    if (made !== count)
      throw new Violation(`${count} deliveries were resent, and ${made} attempts made`);
  }
  isOut = false;
  const endedAt = world.now;
  await record("lead.created");
  const pending = store.rows<{ id: string }>(
    "SELECT event_id AS id FROM deliveries WHERE state = 'pending'",
  );
  await resend(pending.map(({ id }) => id));
  await pass(MINUTE_MS);
  expectDelivered(() => true, MINUTE_MS, endedAt);
}

/** It recovers for a minute every few hours. */
async function everythingButAMinute({ world, subscribe, record, pass }: Stage) {
  const { chance } = world;
  const responses = chance.pick([
    [400, 500],
    [503, "unreachable"],
    [500, "timed_out", 503],
  ] as const);
  const hours = chance.pick([1, 3, 12, 30]);
  const isFine = () => world.now % (hours * HOUR_MS) < MINUTE_MS;
  await subscribe(
    () => (isFine() ? 200 : chance.pick<Response>(responses)),
    ["lead.created", "run.completed"],
  );
  const days = chance.pick([1, 5]);
  for (const until = world.now + days * DAY_MS; world.now < until; ) {
    await record(chance.pick(["lead.created", "run.completed"]), chance.pick([1, 1, 1, 30]));
    await pass(chance.between(1, 120) * MINUTE_MS);
  }
}

/** It is dead, until the subscription gets another URL. Events may be replayed, too. */
async function everythingUntilItMoves(stage: Stage) {
  const { world, subscribe, record, pass, moveTo, replay, expectDelivered } = stage;
  const { chance } = world;
  const response = chance.pick([
    500,
    503,
    "unreachable",
    "timed_out",
    { status: 503, retryAfterSeconds: 1_800 },
  ] as const);
  let isOut = true;
  await subscribe(() => (isOut ? response : 200), ["lead.created", "run.completed"]);
  const count = chance.pick([1, 3, 30, 400]);
  await record("run.completed", count);
  for (let i = 0; i < 20; i++) {
    await pass(chance.between(1, 40) * MINUTE_MS);
    await record("lead.created");
  }
  await pass(chance.between(0, 20_000));
  const since = world.now;
  if (chance.happens(0.5)) await moveTo(() => 200);
  else {
    isOut = false;
    await replay();
  }
  await pass(10 * MINUTE_MS);
  // What is replayed is due in slots of 100 ms.
  expectDelivered(() => true, 20_000 + (count + 20) * (100 + SENT_WITHIN_MS), since);
}

function pickRejection({ chance }: Stage["world"]): Response {
  return chance.pick([400, 422, 500]);
}

/** Opens a workspace whose events one subscription gets. */
async function openStage(deployment: Deployment) {
  const { world, store, subscribers, lanes, call, subscribe } = deployment;
  const isIdle = () => lanes.deliveries.isIdle() && lanes.redeliveries.isIdle();
  const { posts, withdrawnAt, resends } = subscribers;
  const { workspaceId } = await call("createWorkspace", { name: "Agence", adminEmails: [] });
  let webhookId = "";
  let listed: readonly WebhookEvent[] = [];
  let references = 0;
  const automation = {
    reference: "automation",
    type: "lead_ads",
    provider: "facebook",
    agent: AGENT,
    status: "active",
  };
  const { ids } = await call("recordAutomations", { workspaceId, automations: [automation] });
  const [automationId] = ids as unknown as string[];

  /** Records so many events of a type. */
  async function record(type: WebhookEvent, count = 1): Promise<void> {
    for (let left = count; left > 0; left -= CHUNK) await recordChunk(type, Math.min(left, CHUNK));
  }

  async function recordChunk(type: WebhookEvent, count: number): Promise<void> {
    const chunk = Array.from({ length: count }, () => ({ reference: `record-${++references}` }));
    const recorders: Record<WebhookEvent, () => Promise<unknown>> = {
      "lead.created"() {
        const leads = chunk.map((one) => ({ ...one, source: "crm", agent: AGENT, name: "Lead" }));
        return call("recordLeads", { workspaceId, leads });
      },
      "run.completed"() {
        const run = { automationId, status: "success", triggerType: "lead_ads", actions: [] };
        return call("recordRuns", { workspaceId, runs: chunk.map((one) => ({ ...one, ...run })) });
      },
      "automation.status_changed"() {
        automation.status = automation.status === "active" ? "paused" : "active";
        return call("recordAutomations", { workspaceId, automations: [automation] });
      },
    };
    await recorders[type]();
  }

  /** Subscribes an endpoint that follows a script. */
  async function open(script: Script, types: readonly WebhookEvent[]): Promise<void> {
    listed = types;
    webhookId = await subscribe(workspaceId as never, subscribers.openScripted(script), [...types]);
  }

  /** Removes a type from the subscription. */
  async function unlist(type: WebhookEvent): Promise<void> {
    listed = listed.filter((one) => one !== type);
    await call("updateWebhook", { webhookId, events: listed });
    withdrawnAt.set(`${webhookId} ${type}`, world.now);
  }

  /** Sends events again by their ids. @returns how many. */
  async function resend(eventIds: string[]): Promise<number> {
    for (const id of eventIds) resends.set(id, (resends.get(id) ?? 0) + 1);
    const { count } = await call("redeliver", { webhookId, eventIds });
    return count as never;
  }

  /** Replays all events that have not been delivered. */
  async function replay(): Promise<void> {
    const since = new Date(world.now - 20 * DAY_MS).toISOString();
    const states = ["exhausted", "cancelled", "missed", "retrying"];
    subscribers.replayedAt.push(world.now);
    for (let cursor: string | null = null; ; ) {
      const more: Record<string, never> = await call("redeliver", {
        webhookId,
        since,
        states,
        cursor,
      });
      cursor = more.nextCursor as unknown as string | null;
      if (cursor === null) return;
    }
  }

  /** Gives the subscription another endpoint, which follows a script. */
  async function moveTo(script: Script): Promise<void> {
    const [row] = store.rows<{ url: string }>("SELECT url FROM subscriptions");
    await call("updateWebhook", { webhookId, url: `https://${subscribers.openScripted(script)}/` });
    withdrawnAt.set(`${webhookId} ${row?.url}`, world.now);
  }

  /** Lets time pass. Afterwards, no sweep may be needed: what is pending has a message underway. */
  async function pass(ms: number): Promise<void> {
    await world.sleep(ms);
    if (world.now - store.lastCommitAt < MINUTE_MS || !isIdle()) return;
    const [left] = store.rows<{ event_id: string }>(
      "SELECT event_id FROM deliveries WHERE state = 'pending'",
    );
    if (left) throw new Violation(`${left.event_id} is pending, and no message is underway`);
  }

  /**
   * Each event that the endpoint accepts was delivered within this time, from when it was recorded, or from `since`.
   */
  function expectDelivered(
    isAccepted: (event: OfferedEvent) => boolean,
    withinMs: number,
    since = 0,
  ): void {
    const deliveredAt = new Map(
      posts
        .filter(({ acknowledged }) => acknowledged)
        .map(({ eventId, endedAt }) => [eventId, endedAt]),
    );
    const events = store.rows<{ id: string; type: WebhookEvent }>("SELECT id, type FROM events");
    for (const event of events) {
      const committedAt = store.committedAt.get(event.id) ?? 0;
      if (!isAccepted({ ...event, committedAt })) continue;
      const from = Math.max(committedAt, since);
      const waitedMs = (deliveredAt.get(event.id) ?? Number.POSITIVE_INFINITY) - from;
      if (waitedMs > withinMs + TOLERANCE_MS)
        throw new Violation(`${event.id} would be accepted, and waited ${waitedMs} ms`);
    }
  }

  return {
    world,
    store,
    posts,
    subscribe: open,
    record,
    pass,
    resend,
    replay,
    moveTo,
    unlist,
    expectDelivered,
  };
}
