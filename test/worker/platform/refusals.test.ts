import { expect, test } from "vitest";
import { DAY_MS, isoTime } from "../../../src/contract/time.ts";
import { OPERATIONS } from "../../../src/platform/operations.ts";
import {
  automationReport,
  errorOf,
  leadReport,
  openWorkspace,
  Platform,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { subscribe } from "../../support/deliveries.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";

const { workspaceId, keyId } = await openWorkspace();
const automationId = await recordAutomation(workspaceId);
const { id: webhookId } = await subscribe(workspaceId);

/** A call, and what its error says after the method's name; `…` stands for the rest. */
type Refusal = [method: string, says: string, input: unknown];

/** Refusals of one method, with what all of its inputs share. */
function refusals(method: string, shared: object, rows: [says: string, input: object][]) {
  return rows.map(([says, input]): Refusal => [method, says, { ...shared, ...input }]);
}

/** Refusals of the second of two records. */
function records(
  method: string,
  noun: string,
  report: (reference: string) => object,
  rows: [says: string, differences: object][],
) {
  return rows.map(([says, differences]): Refusal => {
    const input = { workspaceId, [noun]: [report("1"), { ...report("2"), ...differences }] };
    return [method, `${noun}[1]${says}`, input];
  });
}

const nested = (depth: number) => JSON.parse(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`);
const UNSAFE = "must be between -9007199254740991 and 9007199254740991; write it as text";
const ILL_FORMED = "must be well-formed text";
const AHEAD = "must be at most 5 minutes ahead";
const YEARS = "must be from 0001-01-02 to 9999-12-30, in UTC";
const inSixMinutes = isoTime(Date.now() + 360_000);
const CONTROLS = "must have no control characters";
/** C0, DEL, C1 and bidirectional controls. */
const CONTROLLED = [
  "\u001b]52;c;cHduZWQ=\u0007",
  "a\nb",
  "a\u007f",
  "a\u009b31m",
  "a\u202ab",
  "a\u202eb",
  "a\u2066b",
  "a\u2069b",
];
const TOO_DEEP = `${"[0]".repeat(30)}: must be nested at most 32 deep`;
const LEAD = { email: "a@example.com" };
const NOW = isoTime(Date.now());

/** What is said of an id that nothing has. */
const UNKNOWN = {
  workspaceId: "no such workspace",
  webhookId: "no such webhook…",
  keyId: "no such key…",
};
/** These can be called again, show what is gone, or look at the database first. */
const WITHOUT_IT = ["deleteWebhook", "eraseWorkspace", "listAuditTrail", "moveWorkspace"];
/** The first example of each other operation: its ids are made up. */
const OF_NOBODY = Object.entries(OPERATIONS).flatMap(([method, { examples }]): Refusal[] => {
  for (const example of examples)
    for (const id of ["workspaceId", "webhookId", "keyId"] as const)
      if (id in example && !WITHOUT_IT.includes(method))
        return [[method, `${id}: ${UNKNOWN[id]}`, example]];
  return [];
});

/** The number of rows in each table. */
async function tables(): Promise<number[]> {
  const names = ["workspaces", "api_keys", "automations", "leads", "runs", "events", "deliveries"];
  const counts = await WORKSPACE_DB.batch<{ n: number }>(
    names.map((name) => WORKSPACE_DB.prepare(`SELECT count(*) AS n FROM ${name}`)),
  );
  return counts.map(({ results }) => results[0]?.n ?? -1);
}

const before = await tables();

// The types, sizes and enumerations of fields are in docs/platform.md, which is generated.
test.each<Refusal>([
  ["createWorkspace", "Invalid input: expected object, received undefined", undefined],
  ["createWorkspace", "Invalid input: expected object, received string", "Agence"],
  ...refusals("createWorkspace", {}, [
    ["name is missing", {}],
    ["name is missing; the property at position 1 is unknown", { owner: "b" }],
    ["name: Too small: expected string to have >=1 characters", { name: "" }],
    [`name: ${ILL_FORMED}`, { name: "a\0" }],
    ...CONTROLLED.map((name): [string, object] => [`name: ${CONTROLS}`, { name }]),
    ["adminEmails[1]: …", { name: "a", adminEmails: ["a@example.com", "b"] }],
    [
      "the properties at positions 1, 2…9, 10 are unknown",
      { name: "a", ...Object.fromEntries(Array(10).entries()) },
    ],
    [
      "the properties at positions 1, 2…10 and 2 more are unknown",
      { name: "a", ...Object.fromEntries(Array(12).entries()) },
    ],
  ]),
  ["updateWorkspace", `name: ${CONTROLS}`, { workspaceId, name: "a\u009b" }],
  ["createApiKey", `name: ${CONTROLS}`, { workspaceId, name: "a\u009b" }],
  [
    "createApiKey",
    "requestsPerWindow: Too big: expected number to be <=1000000",
    { workspaceId, requestsPerWindow: 1e20 },
  ],
  [
    "rollApiKey",
    "overlapSeconds: Too big: expected number to be <=604800",
    { keyId, overlapSeconds: 604_801 },
  ],
  ["ledger", `actor: ${CONTROLS}`, { workspaceId, actor: "a\u009b" }],
  ...refusals("revokeApiKey", {}, [
    ["apiKey: no such key", { apiKey: `key_live_${"x".repeat(32)}` }],
    ["expected either keyId or apiKey", { keyId: null }],
    ["expected either keyId or apiKey", { keyId, apiKey: `key_live_${"x".repeat(32)}` }],
  ]),
  ...records("recordAutomations", "automations", automationReport, [
    [`.provider: ${CONTROLS}`, { provider: "a\u009b" }],
    [`.agent.name: ${CONTROLS}`, { agent: { reference: "1", name: "a\u009b" } }],
    [`.name: ${CONTROLS}`, { type: "crm_source", name: "a\u009b" }],
    [".name: required for a crm_source automation", { type: "crm_source" }],
    [`.updatedAt: ${AHEAD}`, { updatedAt: inSixMinutes }],
    [": the property at position 6 is unknown", { owner: "x" }],
  ]),
  ...records("recordRuns", "runs", (reference) => runReport(reference, automationId), [
    [".actions[1]: the property at position 1 is unknown", { actions: [{}, { kind: "x" }] }],
    [`.actions[0].type: ${ILL_FORMED}`, { actions: [{ type: "\0" }] }],
    [`.occurredAt: ${AHEAD}`, { occurredAt: inSixMinutes }],
  ]),
  ...records("recordLeads", "leads", leadReport, [
    [`.email: ${ILL_FORMED}`, { email: "camille@example.com\ud800" }],
    [`.reference: ${ILL_FORMED}`, { reference: "\0" }],
    [".customFields[0][0][1]: must be JSON…", { customFields: { a: { b: [1, Number.NaN] } } }],
    [".customFields[0]: …", { customFields: { a: 1n } }],
    [".customFields[0]: …", { customFields: { a: new Date(0) } }],
    [`.customFields[0][1]: ${UNSAFE}`, { customFields: { ids: [1, 2 ** 53] } }],
    [`.customFields[0]: ${UNSAFE}`, { customFields: { id: 1e21 } }],
    [`.customFields[0]: ${ILL_FORMED}`, { customFields: { note: "\ud83d" } }],
    [".customFields: must have names of well-formed text", { customFields: { "a\0b": 1 } }],
    [".customFields[0][0]: must have names…", { customFields: { list: [{ "\ude00": 1 }] } }],
    [`.customFields[0][0]${TOO_DEEP}`, { customFields: { list: [nested(31)] } }],
    [".customFields[0][0][0]…", { customFields: nested(1_200) }],
    [".createdAt: Invalid ISO datetime", { createdAt: "2026-01-01T00:00:00" }],
    [".createdAt: Invalid ISO datetime", { createdAt: "2026-02-29T00:00:00Z" }],
    [`.createdAt: ${AHEAD}`, { createdAt: inSixMinutes }],
    [`.createdAt: ${YEARS}`, { createdAt: "0000-01-01T00:00:00Z" }],
    [`.createdAt: ${YEARS}`, { createdAt: "0001-01-01T23:59:59Z" }],
    [`.createdAt: ${YEARS}`, { createdAt: "0001-01-02T00:30:00+01:00" }],
  ]),
  ...refusals("recordLeads", {}, [
    [
      "workspaceId, leads[0].reference, leads[0].source, leads[0].agent are missing",
      { leads: [{ name: "Camille" }] },
    ],
    [
      "leads[0].agent.name is missing; leads[0].agent.reference: Too small…",
      { workspaceId, leads: [{ ...leadReport("1"), agent: { reference: "" } }] },
    ],
    [
      "leads[0].reference…leads[3].reference and 2 more are missing",
      { workspaceId, leads: Array(4).fill({}) },
    ],
  ]),
  ["eraseLeads", "expected ids, references or both", { workspaceId }],
  ...refusals("findLeads", { workspaceId }, [
    ["expected one of email, phone and reference", {}],
    ["expected one of email, phone and reference", { ...LEAD, reference: "1" }],
    ["phone: must have a digit", { phone: "none" }],
    ["cursor: is not a cursor of this list", { ...LEAD, cursor: "x" }],
  ]),
  ["readDelivery", "eventId: …", { webhookId, eventId: "evt_none" }],
  ...refusals("redeliver", { webhookId }, [
    ["eventIds…", {}],
    ["since…", { since: isoTime(Date.now() - 31 * DAY_MS) }],
    [`until: ${YEARS}`, { since: NOW, until: "9999-12-31T00:00:00Z" }],
  ]),
  ...refusals("updateWebhook", { webhookId }, [
    ["expected a URL, events…", {}],
    [`description: ${CONTROLS}`, { description: "a\u009b" }],
    ["description…", { description: "a".repeat(201) }],
    ["url: is not accepted: https_required", { url: "http://a.example/" }],
    ["headers: at most 5", { headers: Object.fromEntries([..."abcdef"].map((n) => [n, "x"])) }],
    ["headers: cannot be combined…", { headers: {}, setHeaders: { "X-Key": "a" } }],
    ["headers: cannot be combined…", { headers: null, removeHeaders: ["X-Key"] }],
    ["headers: two names are the same", { headers: { "X-Key": "a", "x-key": "b" } }],
    ["headers: a name is not valid for a header (RFC 9110, 5.1)", { headers: { "a b": "x" } }],
    ["headers: Host is reserved for the service, HTTP or a proxy", { headers: { Host: "x" } }],
    ["headers: X-Key must be 1 to 1000 visible ASCII characters", { headers: { "X-Key": "é" } }],
  ]),
  ...OF_NOBODY,
])("%s says what is wrong, and changes nothing: %s", async (method, says, input) => {
  const call = Platform[method as keyof typeof Platform] as (input: unknown) => Promise<unknown>;
  const message = await errorOf(call(input));
  const [start = "", end] = `${method}: ${says}`.split("…");
  if (end === undefined) expect(message).toBe(start);
  else expect([message.slice(0, start.length), message.endsWith(end)]).toEqual([start, true]);
  expect(await tables()).toEqual(before);
});

test("names few of a hundred thousand unknown properties, and looks up no other", async () => {
  const lead = Object.assign(leadReport("many"), Object.fromEntries(Array(100_000).entries()));
  const startedAt = Date.now();
  const message = await errorOf(Platform.recordLeads({ workspaceId, leads: [lead] }));
  expect(message).toMatch(/ and 99990 more are unknown$/);
  expect(Date.now() - startedAt).toBeLessThan(5_000);
});
