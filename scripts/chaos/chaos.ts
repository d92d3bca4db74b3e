/**
 * Records events while the runtime is killed and its services fail, and checks that nothing was
 * lost.
 *
 *     npm run chaos -- --events 2000 --kills 25 --faults 5 --seed 1
 *
 * The built Worker runs in a separate process with persistent storage; SIGKILL ends it together
 * with its in-memory queues. Calls to D1, Durable Objects and queues meet every fault of
 * `faults.ts` in turn, before they are carried out and after, while clients read and write over
 * HTTP. Exits 1 if anything was lost, an invariant failed, or a caller met an error that should
 * have been retried.
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { build } from "esbuild";
import type { Ledger } from "../../src/webhooks/ledger.ts";
import { startReceiver } from "../../test/node/support/receiver.ts";
import { Chance } from "../shared/chance.ts";
import { makeWritable, ROOT } from "../shared/checkout.ts";
import { fail, openSteps, parseArguments, parseCount } from "../shared/command.ts";
import { buildWorker, ENCRYPTION_KEYS } from "../shared/runtime.ts";
import { bodyOf, EVENTS_WITH_BODIES, type EventWithBody } from "../shared/stored-bodies.ts";
import { print, printError } from "../shared/terminal.ts";
import { audit, type Stored } from "./audit.ts";
import { AGENT, makeTraffic, type Traffic } from "./traffic.ts";
import { Victim } from "./victim.ts";

const USAGE = `npm run chaos -- [--events N] [--kills N] [--faults N] [--seed N] [--built]

Records events while the runtime is killed and its services fail, and checks that nothing was lost.

  --events N  number of events (default: 1000)
  --kills N   number of kills (default: 20)
  --faults N  percentage of calls to D1, Durable Objects and queues that fail (default: 5)
  --seed N    repeats the random choices of an earlier test
  --built     uses the Worker that is already built
`;

/** How long it may take for all faults to occur, once the events are recorded. */
const ROUND_MAX_MS = 300_000;
const SETTLED_MAX_MS = 600_000;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, {
  events: { type: "string", default: "1000" },
  kills: { type: "string", default: "20" },
  faults: { type: "string", default: "5" },
  built: { type: "boolean", default: false },
  seed: { type: "string", default: String(Date.now() % 1_000_000) },
});
const eventsWanted = parseCount("--events", values.events);
const killsWanted = parseCount("--kills", values.kills, 0);
const percent = parseCount("--faults", values.faults, 0);
const seed = parseCount("--seed", values.seed, 0);
const chance = new Chance(seed);
const step = openSteps();
const startedAt = Date.now();

printError(
  `${eventsWanted} events, ${killsWanted} kills, ${percent} % of calls fail, seed ${seed}`,
);
const wrapper = await prepare();
step("starting the runtime");
const victim = new Victim(wrapper, seed, percent);
process.on("exit", () => victim.killNow());
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
await victim.start();

// Receivers: fast, slow, and one that refuses the first attempt of some events.
const refused = new Set<string>();
const receivers = await Promise.all([
  startReceiver(),
  startReceiver(async () => {
    await sleep(chance.between(0, 200));
    return 200;
  }),
  startReceiver(({ headers }) => {
    const id = String(headers["webhook-id"]);
    if (refused.has(id) || !chance.happens(0.02)) return 204;
    refused.add(id);
    return 503;
  }),
]);
const { workspaceId } = await victim.insist<{ workspaceId: string }>("platform/createWorkspace", {
  name: "Chaos",
});
const { apiKey } = await victim.insist<{ apiKey: string }>("platform/createApiKey", {
  workspaceId,
});
const automation = {
  reference: "automation",
  type: "social_messages",
  provider: "facebook",
  agent: AGENT,
  status: "active",
};
// Before there are subscriptions: its events are those of its pauses and activations.
const { ids } = await victim.insist<{ ids: [string] }>("platform/recordAutomations", {
  workspaceId,
  automations: [automation],
});
for (const { url } of receivers) {
  const body = { url, events: ["lead.created", "automation.status_changed"] };
  const answer = await victim.request("POST", "/v1/webhooks", apiKey, { body });
  if (answer.status !== 201) throw new Error(`subscribing answered ${answer.status}`);
}

const recorded = new Set<string>();
let references = 0;

async function recordLeads(): Promise<void> {
  const count = Math.min(chance.between(1, 20), eventsWanted - references);
  if (count <= 0) return;
  const leads = Array.from({ length: count }, () => ({
    reference: `lead-${++references}`,
    source: "crm",
    agent: AGENT,
    name: `Lead ${references}`,
  }));
  const { ids } = await victim.insist<{ ids: string[] }>("platform/recordLeads", {
    workspaceId,
    leads,
  });
  for (const id of ids) recorded.add(id);
}

/** A call with one invalid item: nothing of it may be recorded. */
async function recordNonsense(): Promise<void> {
  const good = { source: "crm", agent: AGENT, name: "Refusé" };
  const leads = [
    { ...good, reference: `refused-${references}` },
    { ...good, reference: "" },
  ];
  const taken = await victim.call("platform/recordLeads", { workspaceId, leads }).then(
    () => true,
    () => false,
  );
  if (taken) throw new Error("a call with an invalid item was accepted");
}

const traffic: Traffic = { requests: 0, changes: 0, moves: 0, failures: [] };
const workSince = Date.now();
async function record(): Promise<void> {
  while (references < eventsWanted) {
    await Promise.all([
      recordLeads(),
      recordLeads(),
      ...(chance.happens(0.2) ? [recordNonsense()] : []),
    ]);
    // Spread over the kills.
    const share = (Date.now() - workSince) / (killsWanted * 1_500);
    if (victim.kills < killsWanted && references / eventsWanted > share) await sleep(20);
  }
}
const tell = (more = "") =>
  step(
    `${recorded.size} of ${eventsWanted} leads, ${traffic.requests} requests, ` +
      `${victim.kills} of ${killsWanted} kills, ${victim.injections.total} faults, ` +
      `${traffic.moves} moves${more}`,
    5_000,
  );
const telling = setInterval(tell, 1_000);
let isOver = false;
const work = record();
const others = makeTraffic({ victim, workspaceId, apiKey }, traffic, ids[0], () => isOver);
while (victim.kills < killsWanted) {
  await sleep(chance.between(200, 1_700));
  await victim.kill();
}
await work;
const missing = () => (percent > 0 ? victim.injections.missing() : []);
for (const until = Date.now() + ROUND_MAX_MS; missing().length > 0 && Date.now() < until; )
  await sleep(100);
isOver = true;
await others;
clearInterval(telling);
await victim.insist("end", {});

step("waiting for what is pending");
let ledger = await victim.insist<Ledger>("platform/ledger", {});
for (const until = Date.now() + SETTLED_MAX_MS; ledger.pending > 0 && Date.now() < until; ) {
  step(`${ledger.pending} deliveries are pending`, 5_000);
  await sleep(1_000);
  ledger = await victim.insist<Ledger>("platform/ledger", {});
}

const query = <T>(sql: string) => victim.insist<T>("query", sql);
const events = (await query<EventWithBody[]>(EVENTS_WITH_BODIES)).map(async (event) => ({
  id: event.eventId,
  type: event.type,
  body: (await bodyOf(ENCRYPTION_KEYS, event)) ?? "",
}));
const stored: Stored = {
  events: await Promise.all(events),
  deliveries: await query(
    "SELECT d.event_id, s.url, d.state, d.settled_at FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id",
  ),
  ledger,
};
await victim.stop();
await Promise.all(receivers.map((receiver) => receiver.close()));
step("");

const { changes } = traffic;
const found = audit(stored, { leads: recorded, leadsWanted: eventsWanted, changes, receivers });
const failures = [
  ...found.failures,
  ...victim.failures,
  ...traffic.failures,
  ...missing().map((fault) => `never injected: ${fault}`),
];
const { posts, lost } = found;
const duplicates = posts - refused.size - (stored.deliveries.length - lost);
if (percent > 0)
  print(`Faults injected, before / after:\n${victim.injections.lines().join("\n")}\n`);
print(
  `events ${stored.events.length}, kills ${victim.kills}, faults ${victim.injections.total}, ` +
    `requests ${traffic.requests}, moves ${traffic.moves}, deliveries ${posts}, duplicates ${duplicates}, ` +
    `refused once ${refused.size}, lost ${lost}, failures ${failures.length}, seed ${seed}, ` +
    `${Math.round((Date.now() - startedAt) / 1000)} s`,
);
for (const failure of failures.slice(0, 20)) print(`FAILED: ${failure}`);
process.exit(lost > 0 || failures.length > 0 ? 1 : 0);

/** Builds the Worker and its wrapper; returns the wrapper's file. */
async function prepare(): Promise<string> {
  const folder = join(ROOT, "dist/chaos");
  const outfile = join(folder, "worker.js");
  if (!values.built) {
    step("building the Worker");
    buildWorker();
  }
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
