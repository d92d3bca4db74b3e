import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { DAY_MS, MINUTE_MS } from "../../../src/contract/time.ts";
import { isAccepted } from "./endpoints.ts";
import {
  checkDisabled,
  checkHistory,
  checkMessages,
  checkRetryAfter,
  checkWoken,
} from "./invariants.ts";
import {
  eventsOf,
  type Figures,
  figuresOf,
  openEndpoint,
  RESENT_MAX,
  type Scenario,
  type ScenarioEvent,
} from "./scenarios.ts";
import type { Life } from "./simulate.ts";
import { NO_FAULTS } from "./world.ts";

const AGENT = { reference: "agent", name: "Agent" };
/** Maximum records of a call. */
const CHUNK = 100;

/**
 * Runs the real code through a scenario. Nothing fails but what it says: so no scheduled job is needed, unless processes die.
 *
 * @throws Violation if an invariant does not hold.
 */
export async function liveThrough(scenario: Scenario, life: Life): Promise<Figures> {
  const { world, store, endpoints, deployment } = life;
  const { call, subscribe, runScheduledJob, areQueuesIdle, consumed } = deployment;
  const { hours, clocks = 0, lostReplies = 0, deaths = 0, byHand, movesAt } = scenario;
  world.odds = { ...NO_FAULTS, d1LosesReply: lostReplies, consumerDies: deaths };
  world.isolateSkewMs = clocks * 1000;
  const isWell = lostReplies === 0 && deaths === 0;
  const respond = openEndpoint(scenario);
  const events = eventsOf(scenario);
  const ofType = Map.groupBy(events, ({ type }) => type);
  /** The place of each event among those of its type, by its id. */
  const places = new Map<string, string>();
  let startedAt = world.now;
  const elapsed = () => (world.now - startedAt) / 1000;
  const at = (seconds: number) => world.sleep(startedAt + seconds * 1000 - world.now);

  const host = endpoints.openScripted((eventId, type) => {
    const rule = respond(eventOf(eventId, type), elapsed());
    return { answer: rule?.response ?? 200, retryAfter: rule?.retryAfter };
  });
  let workspaceId: unknown;
  let webhookId = "";
  let automationId: unknown;
  happen().catch((error) => world.fail(error));
  checkEachMinute();
  await world.run(() => elapsed() >= hours * 3600);

  const { sent } = endpoints;
  const calls = new Set(events.map((event) => event.at)).size + Math.ceil(events.length / CHUNK);
  if (isWell) {
    checkMessages(consumed(), calls, sent);
    checkRetryAfter(sent, 2 * world.isolateSkewMs);
    checkHistory(store, sent, byHand ? 1 : 0);
  }
  checkDisabled(store, sent);
  const deliveredAt = new Map<unknown, number>();
  for (const one of sent.filter(isAccepted).toReversed())
    deliveredAt.set(eventOf(one.eventId, one.type), ((one.endedAt as number) - startedAt) / 1000);
  return figuresOf(scenario, sent.length, ({ type, place }) =>
    deliveredAt.get(ofType.get(type)?.[place]),
  );

  /** The event of the scenario that has this id: its place is the reference of its record. */
  function eventOf(eventId: string, type: WebhookEvent) {
    const sql = `SELECT coalesce((SELECT reference FROM leads WHERE id = e.lead_id),
        (SELECT reference FROM runs WHERE id = iif(e.lead_id IS NULL, e.body ->> '$.data.id', NULL))) AS place
      FROM events AS e WHERE workspace_id = ? AND id = ?`;
    const place =
      places.get(eventId) ??
      store.rows<{ place: string }>(sql, workspaceId as string, eventId)[0]?.place ??
      "";
    places.set(eventId, place);
    return ofType.get(type)?.[Number(place)] as ScenarioEvent;
  }

  async function happen(): Promise<void> {
    ({ workspaceId } = await call("createWorkspace", { name: "Agence", adminEmails: [] }));
    webhookId = await subscribe(workspaceId as string, host, ["lead.created", "run.completed"]);
    const automation = { reference: "automation", type: "lead_ads", provider: "facebook" };
    const automations = [{ ...automation, agent: AGENT, status: "active" }];
    const { ids } = await call("recordAutomations", { workspaceId, automations });
    [automationId] = ids as unknown as string[];
    // These calls may take seconds, and are no part of the scenario.
    startedAt = world.now;
    await Promise.all([
      record(),
      byHand && at(byHand.at).then(byHand.what === "resend" ? resend : replay),
      movesAt && at(movesAt).then(move),
    ]);
  }

  async function record(): Promise<void> {
    for (const [seconds, together] of Map.groupBy(events, (event) => event.at)) {
      await at(seconds);
      const chunks: Promise<unknown>[] = [];
      for (const [type, own] of Map.groupBy(together, (event) => event.type))
        for (let i = 0; i < own.length; i += CHUNK)
          chunks.push(recordChunk(type, own.slice(i, i + CHUNK)));
      await Promise.all(chunks);
    }
  }

  function recordChunk(type: WebhookEvent, chunk: ScenarioEvent[]): Promise<unknown> {
    const references = chunk.map(({ place }) => ({ reference: String(place) }));
    const run = { automationId, status: "success", triggerType: "lead_ads", actions: [] };
    const lead = { source: "crm", agent: AGENT, name: "Lead" };
    return type === "lead.created"
      ? call("recordLeads", { workspaceId, leads: references.map((one) => ({ ...lead, ...one })) })
      : call("recordRuns", { workspaceId, runs: references.map((one) => ({ ...run, ...one })) });
  }

  async function resend(): Promise<void> {
    const sql =
      "SELECT event_id AS id FROM deliveries WHERE state = 'pending' ORDER BY event_id LIMIT ?";
    const pending = store.rows<{ id: string }>(sql, RESENT_MAX);
    const eventIds = pending.map(({ id }) => id);
    if (eventIds.length > 0) await call("redeliver", { webhookId, eventIds });
  }

  /** Replays all that was not delivered. */
  async function replay(): Promise<void> {
    const since = new Date(world.now - 20 * DAY_MS).toISOString();
    const states = ["exhausted", "cancelled", "missed", "retrying"];
    for (let cursor: unknown = null; ; ) {
      const more = await call("redeliver", { webhookId, since, states, cursor });
      cursor = more.nextCursor;
      if (cursor === null) return;
    }
  }

  async function move(): Promise<void> {
    const url = `https://${endpoints.openScripted(() => ({ answer: 200 }))}/`;
    await call("updateWebhook", { webhookId, url });
    endpoints.endedAt.set(`${webhookId} https://${host}/`, world.now);
  }

  function checkEachMinute(): void {
    world.after(MINUTE_MS, () => {
      if (isWell) world.guard(() => checkWoken(store, areQueuesIdle()));
      else runScheduledJob();
      checkEachMinute();
    });
  }
}
