import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test } from "vitest";
import { LeadRecording } from "../../../src/recording/lead-recording.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { PERSONAL_FIELDS, showPerson } from "../../../src/records/person.ts";
import { openedDataKeys } from "../../../src/workspaces/data-keys.ts";
import {
  eventsOf,
  leadReport,
  openListeningWorkspace,
  openWorkspace,
  Platform,
  refusal,
  send,
} from "../../support/api.ts";
import {
  consumeFor,
  isolated,
  observedDatabase,
  receivedBy,
  statesOf,
  subscribe,
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";
import { record } from "../../support/record.ts";

/** A person with a value in each field, under the names of the platform: the document's examples. */
async function examplePerson() {
  const { body } = await send<{
    components: { schemas: { Lead: { properties: Record<string, { example?: unknown }> } } };
  }>("/openapi.json");
  const { properties } = body.components.schemas.Lead;
  return Object.fromEntries(
    Object.entries(PERSONAL_FIELDS).map(([name, { shownAs }]) => [
      name,
      properties[shownAs]?.example,
    ]),
  ) as Parameters<typeof showPerson>[0];
}

/** The texts in a value. */
function textsIn(value: unknown): string[] {
  if (typeof value === "object" && value !== null) return Object.values(value).flatMap(textsIn);
  return typeof value === "string" ? [value] : [];
}

/** Everything that is stored, whatever the table. */
async function dump(): Promise<string> {
  const { results } = await WORKSPACE_DB.prepare(
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_cf%' ESCAPE '\\'",
  ).all<{ name: string }>();
  const tables = results.map(({ name }) => WORKSPACE_DB.prepare(`SELECT * FROM "${name}"`));
  return JSON.stringify(await WORKSPACE_DB.batch(tables));
}

test("each personal field is shown, announced and exported as reported", async () => {
  const person = await examplePerson();
  for (const [name, value] of Object.entries(person)) expect(value, name).toBeDefined();
  const { workspaceId, api } = await openListeningWorkspace();
  await Platform.recordLeads({ workspaceId, leads: [leadReport("1", person)] });
  const { body } = await api.get<{ data: Lead[] }>("/v1/leads");
  expect(body.data).toEqual([expect.objectContaining(showPerson(person))]);
  expect(await eventsOf(workspaceId)).toEqual([expect.objectContaining({ data: body.data[0] })]);
  const { items } = await Platform.exportWorkspace({ workspaceId });
  expect(items.filter(({ kind }) => kind === "lead")).toEqual([expect.objectContaining(person)]);
  const stored = await dump();
  expect(stored).toContain(body.data[0]?.id);
  for (const text of textsIn(person)) expect(stored).not.toContain(text);
});

test("what is not reported of a person is null, and custom fields are empty", () => {
  const { custom_fields, ...others } = showPerson({});
  expect(custom_fields).toEqual({});
  expect(new Set(Object.values(others))).toEqual(new Set([null]));
});

test("whatever else is reported of a lead says nothing about the person", () => {
  const { shape } = LeadRecording.shape.leads.element;
  const others = Object.keys(shape).filter((name) => !(name in PERSONAL_FIELDS));
  expect(others).toEqual(["reference", "source", "agent", "createdAt"]);
});

const lines = keepLog();

beforeEach(() => openedDataKeys.clear());

describe("recording leads", () => {
  test("looks up the data key once in each isolate", async () => {
    const { workspaceId } = await openWorkspace();
    const { DB, trips } = observedDatabase();
    for (const [i, made] of [2, 3, 5].entries()) {
      if (i === 2) openedDataKeys.clear();
      const leads = [leadReport(String(i))];
      await record({ ...env, DB }, "recordLeads", { workspaceId, leads }, Date.now());
      expect(trips).toHaveLength(made);
    }
  });

  test("fails if its workspace's data key cannot be decrypted, and records nothing", async () => {
    const { workspaceId } = await openWorkspace();
    const breaking = "UPDATE workspaces SET sealed_data_key = 'lost.AAAA' WHERE id = ?";
    await WORKSPACE_DB.prepare(breaking).bind(workspaceId).run();
    const report = { workspaceId, leads: [leadReport("1")] };
    await expect(record(env, "recordLeads", report, Date.now())).rejects.toThrow(
      "no encryption key",
    );
    const stored = WORKSPACE_DB.prepare("SELECT count(*) FROM leads WHERE workspace_id = ?");
    expect(await stored.bind(workspaceId).first("count(*)")).toBe(0);
  });
});

describe("recorded leads", () => {
  test("are not shown without their personal data if their data key is gone", async () => {
    const [broken, fine] = [await openWorkspace(), await openWorkspace()];
    const subscriptions = [await subscribe(broken.workspaceId), await subscribe(fine.workspaceId)];
    for (const { workspaceId } of [broken, fine])
      await record(env, "recordLeads", { workspaceId, leads: [leadReport("1")] }, Date.now());
    const lose = WORKSPACE_DB.prepare("UPDATE workspaces SET sealed_data_key = NULL WHERE id = ?");
    await lose.bind(broken.workspaceId).run();
    openedDataKeys.clear();
    expect(await broken.api.get("/v1/leads")).toEqual(refusal(500, "internal_error"));
    const [failed] = lines.filter((line) => line.includes("request_failed"));
    expect(failed).toContain(`${broken.workspaceId} has no data key`);
    const ids = subscriptions.map(({ id }) => id);
    await consumeFor(ids, isolated().env);
    const received = await Promise.all(subscriptions.map(receivedBy));
    expect(received.map((posts) => posts.length)).toEqual([0, 1]);
    expect(await Promise.all(ids.map(statesOf))).toEqual([{ pending: 1 }, { delivered: 1 }]);
  });
});
