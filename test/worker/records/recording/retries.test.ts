import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { WebhookEvent } from "../../../../src/contract/enumerations.ts";
import { openDatabase } from "../../../../src/db/client.ts";
import { controlAutomation } from "../../../../src/records/control.ts";
import {
  automationReport,
  eventsOf,
  leadReport,
  openWorkspace,
  runReport,
} from "../../../support/api.ts";
import { subscribe } from "../../../support/deliveries.ts";
import { type Lost, lossyDatabase } from "../../../support/lost-reply.ts";
import { record } from "../../../support/record.ts";

const EVERYTHING = [...WebhookEvent.options];
const FIRST_MS = Date.parse("2026-01-01T00:00:00.000Z");

/** A workspace with an active automation that has run, and a subscriber to all its events. */
async function openHistory() {
  const { workspaceId } = await openWorkspace();
  const subscription = await subscribe(workspaceId, { events: EVERYTHING });
  let hours = 0;
  const nextHour = () => FIRST_MS + hours++ * 3_600_000;
  const automations = (differences: object) => ({
    workspaceId,
    automations: [automationReport("1", differences)],
  });
  const { ids } = await record(env, "recordAutomations", automations({}), nextHour());
  const id = ids[0] as string;
  const runs = { workspaceId, runs: [runReport("1", id)] };
  await record(env, "recordRuns", runs, nextHour());
  return {
    workspaceId,
    subscription,
    id,
    nextHour,
    /** The writes, each dated by the given hour. */
    writes: {
      report: (differences: object) => (DB: D1Database, at: number) =>
        record({ ...env, DB }, "recordAutomations", automations(differences), at),
      remove: () => (DB: D1Database, at: number) =>
        record({ ...env, DB }, "removeAutomations", { workspaceId, ids: [id] }, at),
      run: () => (DB: D1Database, at: number) =>
        record({ ...env, DB }, "recordRuns", { workspaceId, runs: [runReport("2", id)] }, at),
      lead: () => (DB: D1Database, at: number) =>
        record({ ...env, DB }, "recordLeads", { workspaceId, leads: [leadReport("1")] }, at),
      patch: (status: "active" | "paused") => (DB: D1Database, at: number) => {
        const clock = () => at;
        const db = openDatabase(DB);
        return controlAutomation(db, workspaceId, { crmSource: true }, id, status, clock);
      },
    },
    /** Everything observable, except for random ids. */
    async seen() {
      const ask = async (sql: string) =>
        (await env.DB.prepare(sql).bind(workspaceId).all()).results;
      const found = await ask(
        "SELECT status, agent_name, updated_at, created_at, revision FROM automations WHERE workspace_id = ? AND removed_at IS NULL",
      );
      const ran = await ask(
        "SELECT occurred_at FROM runs JOIN automations AS a ON a.id = automation_id AND a.generation = runs.generation WHERE runs.workspace_id = ? AND removed_at IS NULL",
      );
      const told = (await eventsOf(workspaceId)).map(({ type, created_at, data }) => ({
        type,
        created_at,
        data: { ...data, id: "", automation_id: "", agent_id: "" },
      }));
      const owed = await ask(
        "SELECT json_array_length(owed) AS owed, (SELECT count(*) FROM deliveries AS d WHERE d.event_id = e.id) AS made FROM events AS e WHERE workspace_id = ? ORDER BY created_at",
      );
      return { found, ran, told, owed };
    },
  };
}

type History = Awaited<ReturnType<typeof openHistory>>;
interface Result {
  result?: string;
  wakes?: unknown[];
}
type Write = (history: History) => (DB: D1Database, at: number) => Promise<Result>;

const FIRST: Record<string, Write> = {
  "a report that pauses": ({ writes }) => writes.report({ status: "paused" }),
  "a report that renames": ({ writes }) =>
    writes.report({ agent: { reference: "agent-1", name: "Agence Soleil" } }),
  "a PATCH that pauses": ({ writes }) => writes.patch("paused"),
  "a removal": ({ writes }) => writes.remove(),
  "a run": ({ writes }) => writes.run(),
  "a lead": ({ writes }) => writes.lead(),
};

const MEANWHILE: Record<string, Write[]> = {
  nothing: [],
  "a report that activates": [({ writes }) => writes.report({ status: "active" })],
  "a report that pauses": [({ writes }) => writes.report({ status: "paused" })],
  "a report that fails it": [({ writes }) => writes.report({ status: "error" })],
  "a PATCH that activates": [({ writes }) => writes.patch("active")],
  "a PATCH that pauses": [({ writes }) => writes.patch("paused")],
  "PATCHes there and back": [
    ({ writes }) => writes.patch("active"),
    ({ writes }) => writes.patch("paused"),
    ({ writes }) => writes.patch("active"),
  ],
  "a removal": [({ writes }) => writes.remove()],
  "a removal, and a report that it is back": [
    ({ writes }) => writes.remove(),
    ({ writes }) => writes.report({ status: "active" }),
  ],
  "another subscription": [
    ({ workspaceId }) =>
      async () => {
        await subscribe(workspaceId, { events: EVERYTHING });
        return {};
      },
  ],
};

/** What else may happen to what a first write is about; nothing that is reported changes a lead. */
const MATTERS: Record<string, RegExp> = {
  "a lead": /nothing|subscri/,
  "a run": /nothing|remov|subscri/,
};

const PAIRS = Object.keys(FIRST).flatMap((first) =>
  Object.keys(MEANWHILE)
    .filter((meanwhile) => MATTERS[first]?.test(meanwhile) ?? true)
    .map((meanwhile) => [first, meanwhile] as const),
);

/** The result of `first`; it is rejected if what it refers to is gone. */
async function outcomeOf(first: Promise<Result>) {
  return first.then(
    ({ result }) => result ?? "recorded",
    (error: Error) => {
      expect(error.message).toContain("automation");
      return "refused";
    },
  );
}

async function inTurn(history: History, writes: Write[]): Promise<void> {
  for (const write of writes) await write(history)(env.DB, history.nextHour());
}

describe.concurrent.each<Lost>(["reply", "request"])("a write whose %s is lost", (lost) => {
  test.each(PAIRS)("takes effect once: %s, and in between %s", async (first, meanwhile) => {
    const write = FIRST[first] as Write;
    const others = MEANWHILE[meanwhile] as Write[];

    const history = await openHistory();
    const at = history.nextHour();
    const DB = lossyDatabase(lost, () => inTurn(history, others));
    const outcome = await outcomeOf(write(history)(DB, at));

    // The same without losses, in the order in which the writes took effect.
    const expected = await openHistory();
    const expectedAt = expected.nextHour();
    if (lost === "request") await inTurn(expected, others);
    const expectedOutcome = await outcomeOf(write(expected)(env.DB, expectedAt));
    if (lost === "reply") await inTurn(expected, others);

    expect(await history.seen()).toEqual(await expected.seen());
    expect(outcome).toBe(expectedOutcome);
  });

  test.each(["a report that pauses", "a PATCH that pauses", "a lead"])(
    "wakes those who are owed its event anyway: %s",
    async (first) => {
      const history = await openHistory();
      const write = (FIRST[first] as Write)(history);
      const { wakes } = await write(lossyDatabase(lost), history.nextHour());
      expect(wakes).toEqual([{ subscriptionId: history.subscription.id, lane: "fast" }]);
    },
  );
});

test.each<[Lost, number]>([
  ["reply", 0],
  ["request", 1],
])("what is written by a try whose %s was lost is counted %i times", async (lost, changed) => {
  const { writes, nextHour } = await openHistory();
  if (lost === "reply")
    expect(await writes.lead()(env.DB, nextHour())).toMatchObject({ changed: 1 });
  const lead = lost === "reply" ? [] : [writes.lead()];
  for (const write of [...lead, writes.run(), writes.remove(), writes.report({})])
    expect(await write(lossyDatabase(lost), nextHour())).toMatchObject({ changed });
});
