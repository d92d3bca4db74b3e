/**
 * Records events while the runtime is killed again and again, and checks that nothing was lost.
 *
 *     npm run chaos -- --events 2000 --kills 25 --seed 1
 *
 * The built Worker runs in a process of its own on storage that persists; SIGKILL ends it together
 * with its in-memory queues. `--built` takes the bundle that is there.
 * Exits 1 if anything was lost or an invariant failed.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Ledger } from "../../src/model/ledger.ts";
import { type Post, startReceiver } from "../../test/node/support/receiver.ts";
import { Chance } from "../shared/chance.ts";
import { fail, openProgress, readArguments, readCount } from "../shared/command.ts";
import { buildWorker } from "../shared/runtime.ts";
import { Victim } from "./victim.ts";

const USAGE = `npm run chaos -- [--events N] [--kills N] [--seed N] [--built]

Records events while the runtime is killed again and again, and checks that nothing was lost.

  --events N  how many events; 1000 when left out
  --kills N   how many kills; 20 when left out
  --seed N    plays the choices of an earlier run again
  --built     takes the Worker that is built already
`;

const { values } = readArguments(USAGE, {
  events: { type: "string", default: "1000" },
  kills: { type: "string", default: "20" },
  built: { type: "boolean", default: false },
  seed: { type: "string", default: String(Date.now() % 1_000_000) },
});
const [eventsWanted, killsWanted, seed] = readCounts();
const chance = new Chance(seed);
const progressLine = openProgress();

console.error(
  `${eventsWanted} events, ${killsWanted} kills, seed ${seed}${values.built ? "" : ": building the Worker…"}`,
);
try {
  if (!values.built) buildWorker();
} catch (error) {
  fail(error);
}
const victim = new Victim();
process.on("exit", () => victim.killNow());
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
await victim.start();

// Receivers: quick, slow, and one that refuses the first attempt of some events.
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
const { workspaceId } = await victim.insist<{ workspaceId: string }>("createWorkspace", {
  name: "Chaos",
});
const { apiKey } = await victim.insist<{ apiKey: string }>("createApiKey", { workspaceId });
for (const { url } of receivers) {
  const answer = await fetch(new URL("/v1/webhooks", await victim.url), {
    method: "POST",
    headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      url,
      events: ["lead.created", "run.completed", "automation.status_changed"],
    }),
  });
  if (answer.status !== 201) throw new Error(`subscribing answered ${answer.status}`);
}

const agent = { reference: "agent", name: "Agent" };
const recorded = new Set<string>();
let references = 0;

async function recordLeads(): Promise<void> {
  const count = Math.min(chance.between(1, 20), eventsWanted - references);
  if (count <= 0) return;
  const leads = Array.from({ length: count }, () => ({
    reference: `lead-${++references}`,
    source: "crm",
    agent,
    name: `Lead ${references}`,
  }));
  const { ids } = await victim.insist<{ ids: string[] }>("recordLeads", { workspaceId, leads });
  for (const id of ids) recorded.add(id);
}

/** A call of which one item is wrong: nothing of it may be recorded. */
async function recordNonsense(): Promise<void> {
  const good = { source: "crm", agent, name: "Refusé" };
  const leads = [
    { ...good, reference: `refused-${references}` },
    { ...good, reference: "" },
  ];
  const taken = await victim.call("recordLeads", { workspaceId, leads }).then(
    () => true,
    () => false,
  );
  if (taken) throw new Error("a call with a wrong item was taken");
}

const startedAt = Date.now();
let working = true;
const work = (async () => {
  while (references < eventsWanted) {
    await Promise.all([
      recordLeads(),
      recordLeads(),
      ...(chance.happens(0.2) ? [recordNonsense()] : []),
    ]);
    // Spread over the kills.
    const share = (Date.now() - startedAt) / (killsWanted * 1_500);
    if (victim.kills < killsWanted && references / eventsWanted > share) await sleep(20);
  }
  working = false;
})();
while (working || victim.kills < killsWanted) {
  await sleep(chance.between(200, 1_700));
  if (victim.kills < killsWanted) await victim.kill();
  progress();
}
await work;

let ledger = await victim.insist<Ledger>("ledger", {});
for (const until = Date.now() + 600_000; ledger.pending > 0 && Date.now() < until; ) {
  await sleep(1_000);
  progress(`, ${ledger.pending} pending`);
  ledger = await victim.insist<Ledger>("ledger", {});
}

const failures: string[] = [];
const events = await victim.insist<{ id: string; body: string }[]>(
  "query",
  "SELECT id, body FROM events",
);
const rows = await victim.insist<
  { event_id: string; url: string; state: string; settled_at: number | null }[]
>(
  "query",
  "SELECT d.event_id, s.url, d.state, d.settled_at FROM deliveries d JOIN subscriptions s ON s.id = d.subscription_id",
);
await victim.stop();
await Promise.all(receivers.map((receiver) => receiver.close()));

const bodies = new Map(events.map(({ id, body }) => [id, body]));
const told = new Map(events.map(({ body }) => [JSON.parse(body).data.id as string, body]));
for (const id of recorded) if (!told.has(id)) failures.push(`${id} was recorded, but has no event`);
if (told.size !== events.length) failures.push("two events tell of one record");
for (const [id, body] of told)
  if (body.includes("Refusé")) failures.push(`${id} was refused, but has an event`);
if (recorded.size !== eventsWanted || events.length !== recorded.size)
  failures.push(`${recorded.size} records and ${events.length} events of ${eventsWanted}`);
if (rows.length !== events.length * receivers.length)
  failures.push(`${rows.length} deliveries for ${events.length} events`);
if (!ledger.addsUp || ledger.pending > 0) failures.push(`the ledger: ${JSON.stringify(ledger)}`);

let posts = 0;
let lost = 0;
const settledAt = new Map(rows.map((row) => [`${row.event_id} ${row.url}`, row.settled_at]));
for (const { url, posts: got } of receivers) {
  posts += got.length;
  const byEvent = Map.groupBy(got, ({ headers }: Post) => String(headers["webhook-id"]));
  for (const id of bodies.keys()) if (!byEvent.has(id)) lost++;
  for (const { headers, body, at } of got) {
    const id = String(headers["webhook-id"]);
    if (bodies.get(id) !== body.toString()) failures.push(`${id} reached ${url} with other bytes`);
    const settled = settledAt.get(`${id} ${url}`);
    if (settled != null && at > settled) failures.push(`${id} reached ${url} after it was settled`);
  }
}
const duplicates = posts - refused.size - (rows.length - lost);
progress("\n");
console.log(
  `events ${events.length}, kills ${victim.kills}, deliveries ${posts}, duplicates ${duplicates}, ` +
    `refused once ${refused.size}, lost ${lost}, seed ${seed}, ${Math.round((Date.now() - startedAt) / 1000)} s`,
);
for (const failure of failures.slice(0, 20)) console.log(`FAILED: ${failure}`);
process.exit(lost > 0 || failures.length > 0 ? 1 : 0);

function readCounts(): [events: number, kills: number, seed: number] {
  try {
    return [
      readCount("--events", values.events),
      readCount("--kills", values.kills, 0),
      readCount("--seed", values.seed, 0),
    ];
  } catch (error) {
    fail(error);
  }
}

function progress(more = ""): void {
  const text = `${references} events, ${victim.kills} kills${more}`;
  if (process.stderr.isTTY) process.stderr.write(`\r${text}      `);
  else if (more !== "\n") progressLine(text);
}
