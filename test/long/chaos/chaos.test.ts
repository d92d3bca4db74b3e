import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { Chance } from "../../../scripts/shared/chance.ts";
import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import type { Ledger } from "../../../src/history/ledger.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { bodyOf, EVENTS_WITH_BODIES, type EventWithBody } from "../../support/stored-bodies.ts";
import { until } from "../../support/until.ts";
import { makeTraffic } from "./traffic.ts";
import { Victim } from "./victim.ts";

const { CHAOS_EVENTS = 40, CHAOS_KILLS = 2, CHAOS_SEED = 5 } = process.env;
const EVENTS = Number(CHAOS_EVENTS);
const KILLS = Number(CHAOS_KILLS);
const SETTLED_MAX_MS = 600_000;
const AGENT = { reference: "agent", name: "Agent" };

const chance = new Chance(Number(CHAOS_SEED));
/** The events that the third receiver has refused once. */
const refused = new Set<string>();
const receivers = [
  await opened(startReceiver()),
  await opened(startReceiver(() => sleep(chance.between(0, 200), 200))),
  await opened(
    startReceiver(({ headers }) => {
      const id = String(headers["webhook-id"]);
      if (refused.has(id) || !chance.happens(0.02)) return 204;
      refused.add(id);
      return 503;
    }),
  ),
];

/**
 * The built Worker runs in a process with persistent storage. SIGKILL ends it, together with its queues,
 * which are in memory, while clients read and write over HTTP.
 */
test(`nothing of ${EVENTS} events is lost while the runtime is killed ${KILLS} times`, {
  timeout: 900_000 + KILLS * 30_000,
}, async () => {
  const victim = new Victim();
  onTestFinished(() => victim.stop());
  const { workspaceId } = await victim.platform<{ workspaceId: string }>("createWorkspace", {
    name: "Chaos",
  });
  const { apiKey } = await victim.platform<{ apiKey: string }>("createApiKey", { workspaceId });
  const kind = { type: "social_messages", provider: "facebook", status: "active" };
  // Before there are subscriptions: its events are those of its pauses and activations.
  const { ids } = await victim.platform<{ ids: [string] }>("recordAutomations", {
    workspaceId,
    automations: [{ reference: "automation", agent: AGENT, ...kind }],
  });
  for (const { url } of receivers) {
    const body = { url, events: ["lead.created", "automation.status_changed"] };
    expect(await victim.request("POST", "/v1/webhooks", apiKey, body)).toMatchObject({
      status: 201,
    });
  }

  let isOver = false;
  const recording = recordAll(victim, workspaceId);
  const client = { victim, workspaceId, apiKey, automationId: ids[0] };
  const traffic = makeTraffic({ ...client, isOver: () => isOver });
  while (victim.kills < KILLS) {
    await sleep(chance.between(200, 1_700));
    await victim.kill();
  }
  const leads = await recording;
  isOver = true;
  const changes = await traffic;
  const readLedger = () => victim.platform<Ledger>("ledger", {});
  await until(async () => (await readLedger()).pending === 0, SETTLED_MAX_MS);

  expect(await readLedger()).toMatchObject({ addsUp: true, pending: 0 });
  const events = await victim.rows<EventWithBody>(EVENTS_WITH_BODIES);
  const bodies = new Map<string, string>();
  for (const event of events) bodies.set(event.eventId, await bodyOf(ENCRYPTION_KEYS, event));
  const told = [...bodies.values()].map((body) => JSON.parse(body));
  const toldLeads = told.filter(({ type }) => type === "lead.created").map(({ data }) => data.id);
  expect(leads.size).toBe(EVENTS);
  expect(toldLeads.toSorted(), "each lead has one event").toEqual([...leads].toSorted());
  expect(told.length - toldLeads.length, "each pause and activation has one event").toBe(changes);
  const deliveries = await victim.rows<{ id: string; url: string; settledAt: number }>(
    `SELECT d.event_id AS id, s.url, d.settled_at AS settledAt
      FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id`,
  );
  expect(deliveries).toHaveLength(events.length * receivers.length);
  for (const { id, url, settledAt } of deliveries) {
    const posts = receivers
      .find((receiver) => receiver.url === url)
      ?.posts.filter(({ headers }) => headers["webhook-id"] === id);
    expect(posts?.length, `${id} reached ${url}`).toBeGreaterThan(0);
    for (const { body, at } of posts ?? []) {
      expect(body.toString(), `${id} reached ${url} with its bytes`).toBe(bodies.get(id));
      expect(at, `${id} reached ${url} before it was settled`).toBeLessThanOrEqual(settledAt);
    }
  }
});

/** Records leads, spread over the kills, and calls with one invalid item. @returns the leads' ids. */
async function recordAll(victim: Victim, workspaceId: string): Promise<Set<string>> {
  const recorded = new Set<string>();
  const since = Date.now();
  let references = 0;
  const record = async () => {
    const count = Math.min(chance.between(1, 20), EVENTS - references);
    if (count <= 0) return;
    const leads = Array.from({ length: count }, () => ({
      reference: `lead-${++references}`,
      source: "crm",
      agent: AGENT,
      name: `Lead ${references}`,
    }));
    const { ids } = await victim.platform<{ ids: string[] }>("recordLeads", { workspaceId, leads });
    for (const id of ids) recorded.add(id);
  };
  const recordNonsense = async () => {
    const good = { source: "crm", agent: AGENT };
    const leads = [`refused-${references}`, ""].map((reference) => ({ reference, ...good }));
    await expect(victim.platform("recordLeads", { workspaceId, leads })).rejects.toThrow(
      "reference",
    );
  };
  while (references < EVENTS) {
    await Promise.all([record(), record(), ...(chance.happens(0.2) ? [recordNonsense()] : [])]);
    const share = (Date.now() - since) / (KILLS * 1_500);
    if (victim.kills < KILLS && references / EVENTS > share) await sleep(20);
  }
  return recorded;
}
