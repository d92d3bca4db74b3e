import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { LeadSource } from "../../../src/contract/enumerations.ts";
import { eventIdAt } from "../../../src/contract/ids.ts";
import { InputError } from "../../../src/contract/input.ts";
import type { Lead } from "../../../src/records/leads.ts";
import type { Run } from "../../../src/records/runs.ts";
import {
  errorOf,
  eventsOf,
  type LeadReport,
  leadReport,
  listAll,
  openListeningWorkspace,
  Platform,
  type RunReport,
  recordAutomation,
  recordLead,
  runReport,
} from "../../support/api.ts";
import { interposed } from "../../support/interposed.ts";
import { inDatabase, WORKSPACE_DB } from "../../support/placement.ts";
import { record } from "../../support/record.ts";

/** A workspace, the leads and events that it shows, and a call that records leads. */
async function openLeads() {
  const { workspaceId, api } = await openListeningWorkspace();
  return {
    record: (...leads: LeadReport[]) => Platform.recordLeads({ workspaceId, leads }),
    listed: () => listAll<Lead>(api, "leads"),
    announced: () => eventsOf(workspaceId),
  };
}

/** Records leads in a new workspace, and returns each from the API and from its event. */
async function recordAndRead(...reports: Partial<LeadReport>[]) {
  const { record, listed, announced } = await openLeads();
  const { ids } = await record(...reports.map((each, i) => leadReport(String(i), each)));
  const [shown, events] = [await listed(), await announced()];
  expect(shown).toHaveLength(reports.length);
  return ids.map((id) => {
    const lead = shown.find((one) => one.id === id) as Lead;
    const event = events.find(({ data }) => data.id === id);
    expect(event?.data).toEqual(lead);
    return { lead, event };
  });
}

test("recordLeads announces each lead as the API shows it", async () => {
  const { record, listed, announced } = await openLeads();
  const startedAt = Date.now();
  const leads = LeadSource.options.map((source, i) =>
    leadReport(source, { source, name: `Lead ${i}`, createdAt: `2026-01-0${i + 1}T00:00:00Z` }),
  );
  const { ids, created } = await record(...leads);
  expect(created).toBe(5);
  const shown = (await listed()).toReversed();
  expect(shown.map(({ id, name }) => [id, name])).toEqual(
    leads.map(({ name }, i) => [ids[i], name]),
  );
  const events = await announced();
  expect(ids.map((id) => events.find(({ data }) => data.id === id))).toEqual(
    shown.map((data) => ({
      id: expect.stringMatching(/^evt_[0-9a-z]+$/),
      type: "lead.created",
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      data,
    })),
  );
  expect(new Set(events.map(({ id }) => id)).size).toBe(5);
  // An event's id says when, and so does its time, however old the lead is.
  for (const { id, created_at } of events) {
    expect(id > eventIdAt(startedAt)).toBe(true);
    expect(Date.parse(created_at)).toBeGreaterThanOrEqual(startedAt);
  }
});

test("a lead of a known reference has its id, changes nothing and causes no second event", async () => {
  const { record, listed, announced } = await openLeads();
  const { ids } = await record(leadReport("1", { name: "First" }));
  const before = [await listed(), await announced()];
  const again = leadReport("1", {
    name: "Second",
    source: "crm",
    email: "x@example.com",
    customFields: { a: 1 },
    createdAt: "2020-01-01T00:00:00Z",
  });
  expect(await record(again)).toEqual({ ids, created: 0 });
  expect([await listed(), await announced()]).toEqual(before);
  const twice = ["A", "B"].map((name) => leadReport("2", { name }));
  const more = await record(again, ...twice, leadReport("3"));
  expect(more).toEqual({ ids: [ids[0], more.ids[1], more.ids[1], more.ids[3]], created: 2 });
  expect(new Set(more.ids).size).toBe(3);
  const shown = await listed();
  expect(shown).toHaveLength(3);
  expect(shown.find(({ id }) => id === more.ids[1])?.name).toBe("A");
  expect(await announced()).toHaveLength(3);
});

test("a lead that several callers report concurrently is announced once", async () => {
  const { record, announced } = await openLeads();
  const leads = [leadReport("1"), leadReport("2")];
  const replies = await Promise.all(Array.from({ length: 10 }, () => record(...leads)));
  for (const { ids } of replies) expect(ids).toEqual(replies[0]?.ids);
  expect(replies.map(({ created }) => created).toSorted()).toEqual([...Array(9).fill(0), 2]);
  expect(await announced()).toHaveLength(2);
});

test("the time of a lead is shown in UTC, to the millisecond", async () => {
  const times = [
    ["2026-03-14T09:26:53.589Z", "2026-03-14T09:26:53.589Z"],
    ["2026-03-14T09:26:53Z", "2026-03-14T09:26:53.000Z"],
    ["2026-01-01T00:30:00+05:30", "2025-12-31T19:00:00.000Z"],
    ["2025-12-31T23:30:00-01:00", "2026-01-01T00:30:00.000Z"],
    ["2026-03-14T09:26:53.589999Z", "2026-03-14T09:26:53.589Z"],
    ["1969-12-31T23:59:59Z", "1969-12-31T23:59:59.000Z"],
    ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"],
  ] as const;
  const read = await recordAndRead(...times.map(([createdAt]) => ({ createdAt })));
  expect(read.map(({ lead }) => lead.created_at)).toEqual(times.map(([, shown]) => shown));
  const startedAt = new Date().toISOString();
  for (const { lead, event } of await recordAndRead({}, { createdAt: null })) {
    const { created_at } = lead;
    expect(created_at >= startedAt && created_at <= new Date().toISOString()).toBe(true);
    expect(event?.created_at).toBe(created_at);
  }
});

test("Text and custom fields are returned unchanged by the API and the event", async () => {
  const texts = [
    "Zoë 🧑‍👩‍👧 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠜎",
    "\"double\" 'single' `back` \\back\\slash\\ \\u0041 \\n",
    "line\nfeed\ttab\r\u0001\u001f\u007f",
    "'; DROP TABLE leads; --",
    "%00 %ff {{name}} <script>&amp;</script>",
    "\u2028\u2029\u200b\ufeff\uffff",
    "e\u0301 é",
    " leading and trailing ",
    "",
    "漢".repeat(1_000),
  ];
  const json = {
    "with space.and-dots": "x",
    "0": "zero",
    constructor: "c",
    toString: "t",
    null: null,
    booleans: [true, false],
    numbers: [0, -1, 1.5, 0.1, 1e-7, 5e-324],
    integers: [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, 4_294_967_296],
    digits: "12345678901234567890",
    nested: { z: { b: [{ c: [[], {}, [null]] }] }, a: 1 },
    date: "2026-01-01T00:00:00+01:00",
    deep: JSON.parse(`${'{"a":'.repeat(31)}1${"}".repeat(31)}`),
  };
  const proto = JSON.parse('{"a":1,"__proto__":{"b":2},"n":{"__proto__":3}}');
  const reports = [
    ...texts.map((name) => ({ name, customFields: { [name]: name } })),
    ...[json, proto].map((customFields) => ({ name: null, customFields })),
  ];
  const shown = (await recordAndRead(...reports)).map(({ lead }) => lead);
  expect(shown.map(({ name, custom_fields }) => [name, JSON.stringify(custom_fields)])).toEqual(
    reports.map(({ name, customFields }) => [name, JSON.stringify(customFields)]),
  );
});

test("a lead has at most 16 KiB of JSON, to the byte, whatever its characters", async () => {
  // Of one to four bytes, one that JSON doubles, and one that it writes in six bytes.
  const mixed = "xé漢😀\\\u0001".repeat(500);
  /** Custom fields that make the JSON of a lead this many bytes long. */
  const sized = (bytes: number) => {
    const json = JSON.stringify(leadReport("1", { customFields: { t: mixed } }));
    return { t: mixed + "x".repeat(bytes - new TextEncoder().encode(json).length) };
  };
  const [largest] = await recordAndRead({ customFields: sized(16_384) });
  expect(largest?.lead.custom_fields).toEqual(sized(16_384));
  const { record, listed } = await openLeads();
  const tooLarge = leadReport("1", { customFields: sized(16_385) });
  expect(await errorOf(record(leadReport("2"), tooLarge))).toContain(
    "recordLeads: leads[1]: must be at most 16384 bytes of JSON",
  );
  expect(await listed()).toEqual([]);
});

/** A workspace with an automation and a lead, and its runs. */
async function openAutomation() {
  const workspace = await openListeningWorkspace();
  const { workspaceId, api } = workspace;
  return {
    workspaceId,
    automationId: await recordAutomation(workspaceId),
    leadId: await recordLead(workspaceId),
    record: (...runs: RunReport[]) => Platform.recordRuns({ workspaceId, runs }),
    listed: () => listAll<Run>(api, "runs"),
    announced: async () =>
      (await eventsOf(workspaceId)).filter(({ type }) => type === "run.completed"),
  };
}

test("recordRuns announces each run, whatever its status", async () => {
  const { automationId, leadId, record, listed, announced } = await openAutomation();
  const startedAt = Date.now();
  const statuses = ["success", "partial", "failed"] as const;
  const actions = [{ type: "envoyé 📨", status: 'a "b" \\c' }, { status: "" }, { type: "x" }, {}];
  const reports = statuses.map((status, i) => {
    const occurredAt = `2026-01-0${i + 1}T00:30:00+05:30`;
    return runReport(status, automationId, { status, leadId, occurredAt, actions });
  });
  const { ids, created } = await record(...reports);
  expect(created).toBe(3);
  const shown = (await listed()).toReversed();
  const times = ["2025-12-31", "2026-01-01", "2026-01-02"].map((day) => `${day}T19:00:00.000Z`);
  expect(shown).toMatchObject(
    statuses.map((status, i) => ({ id: ids[i], status, actions, occurred_at: times[i] })),
  );
  const events = await announced();
  expect(ids.map((id) => events.find(({ data }) => data.id === id))).toEqual(
    shown.map((data) => ({
      id: expect.stringMatching(/^evt_[0-9a-z]+$/),
      type: "run.completed",
      created_at: expect.stringMatching(/Z$/),
      data,
    })),
  );
  expect(events).toHaveLength(3);
  for (const { created_at } of events)
    expect(Date.parse(created_at)).toBeGreaterThanOrEqual(startedAt);
});

test("a run of a known reference has its id, changes nothing and causes no second event", async () => {
  const { automationId, leadId, record, listed, announced } = await openAutomation();
  const startedAt = new Date().toISOString();
  const { ids } = await record(runReport("1", automationId));
  const [shown] = await listed();
  expect(String(shown?.occurred_at) >= startedAt).toBe(true);
  const before = [[shown], await announced()];
  const again = runReport("1", automationId, {
    status: "failed",
    triggerType: "message",
    occurredAt: "2020-01-01T00:00:00Z",
    actions: [{}],
    leadId,
  });
  expect(await record(again)).toEqual({ ids, created: 0 });
  expect([await listed(), await announced()]).toEqual(before);
});

test("recordRuns writes no run if one names an unknown, removed or foreign automation or lead", async () => {
  const { workspaceId, automationId, leadId, record, listed, announced } = await openAutomation();
  const stranger = await openAutomation();
  const removed = await recordAutomation(workspaceId);
  await Platform.removeAutomations({ workspaceId, ids: [removed] });
  const first = runReport("1", automationId, { leadId });
  for (const other of ["aut_unknown", removed, stranger.automationId, ""])
    expect(await errorOf(record(first, runReport("2", other)))).toContain(
      "runs[1].automationId: no such automation in this workspace",
    );
  for (const other of ["lea_unknown", stranger.leadId, "", "lea_\0"])
    expect(await errorOf(record(first, { ...first, leadId: other }))).toContain(
      "runs[1].leadId: no such lead in this workspace",
    );
  expect([await listed(), await announced(), await stranger.listed()]).toEqual([[], [], []]);
});

test("recordRuns fails as a call to repeat if a lead is erased while it commits", async () => {
  const { workspaceId, api } = await openListeningWorkspace();
  const automationId = await recordAutomation(workspaceId);
  const leads = [leadReport("1"), leadReport("2")];
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  const left = ids.slice(0, 1);
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const isRecording = texts.some((text) => /insert into "?runs/i.test(text));
    const id = isRecording && left.shift();
    if (id) await Platform.eraseLeads({ workspaceId, ids: [id] });
    return go();
  });
  const runs = ids.map((leadId, i) => runReport(String(i), automationId, { leadId }));
  const call = () =>
    record({ ...env, ...inDatabase({ DB }) }, "recordRuns", { workspaceId, runs }, Date.now());
  const listed = async () => (await listAll<Run>(api, "runs")).map(({ lead_id }) => lead_id);
  const error = await call().catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(Error);
  expect(error).not.toBeInstanceOf(InputError);
  expect(await listed()).toEqual([]);
  expect(await call()).toMatchObject({ changed: 2 });
  expect(new Set(await listed())).toEqual(new Set([null, ids[1]]));
});
