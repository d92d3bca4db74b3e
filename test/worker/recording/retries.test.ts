import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { ApiError } from "../../../src/contract/errors.ts";
import { connect } from "../../../src/db/client.ts";
import { controlAutomation } from "../../../src/recording/automation-changes.ts";
import {
  type AutomationReport,
  automationReport,
  eventsOf,
  leadReport,
  runReport,
} from "../../support/api.ts";
import { createWorkspace, subscribe } from "../../support/deliveries.ts";
import { type Lost, lossyDatabase } from "../../support/lost-reply.ts";
import { record } from "../../support/record.ts";

const EVERYTHING = [...WebhookEvent.options];
const FIRST_MS = Date.parse("2026-01-01T00:00:00.000Z");

/** A write about a workspace and its automation, on a database, at a time. */
type Write = (on: { workspaceId: string; id: string; DB: D1Database; at: number }) => Promise<{
  wakeUps?: unknown[];
}>;

const report =
  (differences: Partial<AutomationReport>): Write =>
  ({ workspaceId, DB, at }) => {
    const automations = [automationReport("1", differences)];
    return record({ ...env, DB }, "recordAutomations", { workspaceId, automations }, at);
  };

const patch =
  (status: "active" | "paused"): Write =>
  ({ workspaceId, id, DB, at }) =>
    controlAutomation(connect(DB), workspaceId, id, status, () => at);

const WRITES = {
  "a report that pauses": report({ status: "paused" }),
  "a report that activates": report({ status: "active" }),
  "a report that fails it": report({ status: "error" }),
  "a PATCH that pauses": patch("paused"),
  "a PATCH that activates": patch("active"),
  "a removal": ({ workspaceId, id, DB, at }) =>
    record({ ...env, DB }, "removeAutomations", { workspaceId, ids: [id] }, at),
  "a run": ({ workspaceId, id, DB, at }) =>
    record({ ...env, DB }, "recordRuns", { workspaceId, runs: [runReport("2", id)] }, at),
  "a lead": ({ workspaceId, DB, at }) =>
    record({ ...env, DB }, "recordLeads", { workspaceId, leads: [leadReport("1")] }, at),
  "another subscription": async ({ workspaceId }) => {
    await subscribe(workspaceId, { events: EVERYTHING });
    return {};
  },
} satisfies Record<string, Write>;
type Name = keyof typeof WRITES;

/** A workspace with an active automation that has run, and a subscriber to all its events. */
async function openHistory() {
  const workspaceId = await createWorkspace();
  const subscription = await subscribe(workspaceId, { events: EVERYTHING });
  let hours = 0;
  const nextHour = () => FIRST_MS + hours++ * 3_600_000;
  const automations = [automationReport("1", {})];
  const reported = { workspaceId, automations };
  const { ids } = await record(env, "recordAutomations", reported, nextHour());
  const id = ids[0] as string;
  const runs = { workspaceId, runs: [runReport("1", id)] };
  await record(env, "recordRuns", runs, nextHour());
  const rows = async (sql: string) => (await env.DB.prepare(sql).bind(workspaceId).all()).results;
  return {
    subscription,
    nextHour,
    write: (name: Name, DB = env.DB, at = nextHour()) =>
      (WRITES[name] as Write)({ workspaceId, id, DB, at }),
    /** Everything observable, except for random ids. */
    seen: async () => ({
      found: await rows(
        "SELECT status, agent_name, updated_at, created_at FROM automations WHERE workspace_id = ? AND removed_at IS NULL",
      ),
      ran: await rows(
        "SELECT occurred_at FROM runs JOIN automations AS a ON a.id = automation_id WHERE runs.workspace_id = ? AND removed_at IS NULL",
      ),
      told: (await eventsOf(workspaceId)).map(({ type, created_at, data }) => ({
        type,
        created_at,
        data: { ...data, id: "", automation_id: "", agent_id: "" },
      })),
      owed: await rows(
        "SELECT json_array_length(owed) AS owed, (SELECT count(*) FROM deliveries AS d WHERE d.event_id = e.id) AS made FROM events AS e WHERE workspace_id = ? ORDER BY created_at",
      ),
    }),
  };
}

type History = Awaited<ReturnType<typeof openHistory>>;

/** What may happen between the two tries... */
const MEANWHILE: Name[][] = [
  [],
  ["another subscription"],
  ["a removal"],
  ["a removal", "a report that activates"],
  ["a report that pauses"],
  ["a report that fails it"],
  // The automation is active again, however the first try went.
  ["a PATCH that activates", "a PATCH that pauses", "a PATCH that activates"],
];
/** ...of which the first two matter for a lead, and the first four for a run. */
const CASES = [
  ...casesOf("a PATCH that pauses", MEANWHILE),
  ...casesOf("a run", MEANWHILE.slice(0, 4)),
  ...casesOf("a lead", MEANWHILE.slice(0, 2)),
];

function casesOf(first: Name, meanwhile: Name[][]) {
  return meanwhile.map((others) => [first, others.join(" and ") || "nothing", others] as const);
}

/** The result of `first`; it is rejected if what it refers to is gone. */
function outcomeOf(first: ReturnType<Write>) {
  return first.then(
    () => "done",
    (error: Error) => {
      if (error instanceof ApiError) return error.code;
      expect(error.message).toContain("automation");
      return "refused";
    },
  );
}

async function inTurn(history: History, writes: Name[]): Promise<void> {
  for (const name of writes) await history.write(name);
}

/** What is seen of a history without losses, in which `first` comes before the others, after them, or both. */
function withoutLoss(first: Name, others: Name[], [before, after]: boolean[]) {
  const name = [first, ...others, before, after].join();
  const known = possible.get(name) ?? live();
  possible.set(name, known);
  return known;

  async function live() {
    const { nextHour, write, seen } = await openHistory();
    const firstAt = nextHour();
    const results = before ? [await outcomeOf(write(first, env.DB, firstAt))] : [];
    for (const other of others) await write(other, env.DB, nextHour());
    if (after) results.push(await outcomeOf(write(first, env.DB, firstAt)));
    return { seen: await seen(), outcome: results.at(-1) };
  }
}
const possible = new Map<string, Promise<object>>();

// From here on, the order of events is kept.
beforeAll(async () => void (await eventsOf("nobody")));

describe.concurrent.each<Lost>(["reply", "request"])("a write whose %s is lost", (lost) => {
  test.each(CASES)("is made good for: %s, and in between %s", async (first, _, others) => {
    const history = await openHistory();
    const at = history.nextHour();
    const DB = lossyDatabase(lost, () => inTurn(history, others));
    const outcome = await outcomeOf(history.write(first, DB, at));

    // The same without losses: before the others or after them, or, if its reply was lost, both.
    const orders = [[true, false], [false, true], ...(lost === "reply" ? [[true, true]] : [])];
    const possible = orders.map((order) => withoutLoss(first, others, order));
    const result = { seen: await history.seen(), outcome };
    expect(await Promise.all(possible)).toContainEqual(result);
  });

  test("sends the wake-up messages for its event anyway", async () => {
    const { write, subscription } = await openHistory();
    const { wakeUps } = await write("a lead", lossyDatabase(lost));
    expect(wakeUps).toEqual([expect.objectContaining({ subscriptionId: subscription.id })]);
  });
});

test.each<[Lost, number]>([
  ["reply", 0],
  ["request", 1],
])("what is written by a try whose %s was lost is counted %i times", async (lost, changed) => {
  const { write } = await openHistory();
  if (lost === "reply") expect(await write("a lead")).toMatchObject({ changed: 1 });
  const lead: Name[] = lost === "reply" ? [] : ["a lead"];
  for (const name of [...lead, "a run"] as const)
    expect(await write(name, lossyDatabase(lost))).toMatchObject({ changed });
});

describe.each<Lost>(["reply", "request"])("a report or removal whose %s is lost", (lost) => {
  test.each<Name>(["a report that pauses", "a removal"])(
    "is not tried again: in the meantime, others may have changed what it changes: %s",
    async (name) => {
      const { write, seen } = await openHistory();
      const before = await seen();
      await expect(write(name, lossyDatabase(lost))).rejects.toThrow("connection lost");
      const after = await seen();
      if (lost === "request") expect(after).toEqual(before);
      else expect(after.found).not.toEqual(before.found);
    },
  );
});
