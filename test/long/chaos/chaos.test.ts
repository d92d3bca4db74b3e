import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { build } from "esbuild";
import { afterAll, expect, test } from "vitest";
import { Chance } from "../../../scripts/shared/chance.ts";
import { makeWritable, ROOT } from "../../../scripts/shared/checkout.ts";
import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import type { Ledger } from "../../../src/webhooks/ledger.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { bodyOf, EVENTS_WITH_BODIES, type EventWithBody } from "../../support/stored-bodies.ts";
import { until } from "../../support/until.ts";
import { audit, type Stored } from "./audit.ts";
import { AGENT, makeTraffic, type Traffic } from "./traffic.ts";
import { Victim } from "./victim.ts";

const { CHAOS_EVENTS = 60, CHAOS_KILLS = 2, CHAOS_FAULTS = 25, CHAOS_SEED = 5 } = process.env;
const EVENTS = Number(CHAOS_EVENTS);
const KILLS = Number(CHAOS_KILLS);
/** How long it may take for all faults to occur once the events are recorded, and for deliveries. */
const ROUND_MAX_MS = 300_000;
const SETTLED_MAX_MS = 600_000;

const chance = new Chance(Number(CHAOS_SEED));
const victim = new Victim(await buildWrapper(), Number(CHAOS_SEED), Number(CHAOS_FAULTS));
afterAll(() => victim.stop());
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
 * The built Worker runs in a process with persistent storage; SIGKILL ends it together with its queues,
 * which are in memory. Calls to D1, Durable Objects and queues meet each of `FAULTS` in turn, before they
 * are carried out and after, while clients read and write over HTTP.
 */
test(`nothing of ${EVENTS} events is lost while the runtime is killed ${KILLS} times and every kind of call fails in every way`, {
  timeout: 900_000 + KILLS * 30_000,
}, async () => {
  await victim.start();
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
    expect(await victim.request("POST", "/v1/webhooks", apiKey, { body })).toMatchObject({
      status: 201,
    });
  }

  const traffic: Traffic = { changes: 0, failures: [] };
  let isOver = false;
  const recording = recordAll(workspaceId);
  const others = makeTraffic({ victim, workspaceId, apiKey }, traffic, ids[0], () => isOver);
  while (victim.kills < KILLS) {
    await sleep(chance.between(200, 1_700));
    await victim.kill();
  }
  const leads = await recording;
  const missing = () => (Number(CHAOS_FAULTS) > 0 ? victim.injections.missing() : []);
  await until(() => missing().length === 0, ROUND_MAX_MS).catch(() => {});
  isOver = true;
  await others;
  await victim.insist("end", {});
  const readLedger = () => victim.platform<Ledger>("ledger", {});
  await until(async () => (await readLedger()).pending === 0, SETTLED_MAX_MS).catch(() => {});

  const { changes } = traffic;
  const done = { leads, leadsWanted: EVENTS, changes, receivers };
  const { failures, lost } = audit(await readStored(await readLedger()), done);
  expect(missing(), "faults that were never injected").toEqual([]);
  expect([...failures, ...victim.failures, ...traffic.failures].slice(0, 20)).toEqual([]);
  expect(lost).toBe(0);
});

/** Records leads, spread over the kills, and calls with one invalid item. @returns the leads' ids. */
async function recordAll(workspaceId: string): Promise<Set<string>> {
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
    const good = { source: "crm", agent: AGENT, name: "Refusé" };
    const leads = [`refused-${references}`, ""].map((reference) => ({ reference, ...good }));
    await expect(victim.call("platform/recordLeads", { workspaceId, leads })).rejects.toThrow();
  };
  while (references < EVENTS) {
    await Promise.all([record(), record(), ...(chance.happens(0.2) ? [recordNonsense()] : [])]);
    const share = (Date.now() - since) / (KILLS * 1_500);
    if (victim.kills < KILLS && references / EVENTS > share) await sleep(20);
  }
  return recorded;
}

/** The final contents of the database. */
async function readStored(ledger: Ledger): Promise<Stored> {
  const query = <T>(sql: string) => victim.insist<T>("query", sql);
  const events = (await query<EventWithBody[]>(EVENTS_WITH_BODIES)).map(async (event) => ({
    id: event.eventId,
    type: event.type,
    body: (await bodyOf(ENCRYPTION_KEYS, event)) ?? "",
  }));
  return {
    events: await Promise.all(events),
    deliveries: await query(
      "SELECT d.event_id, s.url, d.state, d.settled_at FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id",
    ),
    ledger,
  };
}

/** Bundles the wrapper of the Worker that is already built. @returns its file. */
async function buildWrapper(): Promise<string> {
  const folder = join(ROOT, "dist/chaos");
  const outfile = join(folder, "worker.js");
  makeWritable(folder);
  await build({
    entryPoints: [join(import.meta.dirname, "worker.ts")],
    outfile,
    bundle: true,
    format: "esm",
    target: "es2024",
    plugins: [
      {
        name: "the shipped bundle",
        setup: ({ onResolve }) =>
          onResolve({ filter: /src\/index\.ts$/ }, () => ({
            path: "../worker/index.js",
            external: true,
          })),
      },
    ],
  });
  return outfile;
}
