import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { eventIdAt } from "../../../src/contract/ids.ts";
import type { Lead } from "../../../src/records/leads.ts";
import {
  errorOf,
  eventsOf,
  type LeadReport,
  leadReport,
  listAll,
  openListeningWorkspace,
} from "../../support/api.ts";

const { Platform } = exports;

type Workspace = Awaited<ReturnType<typeof openListeningWorkspace>>;

function listed({ api }: Workspace): Promise<Lead[]> {
  return listAll(api, "leads");
}

/** Records leads in a new workspace, and returns each from the API and from its event. */
async function recordAndRead(reports: Partial<LeadReport>[]) {
  const workspace = await openListeningWorkspace();
  const { workspaceId } = workspace;
  const leads = reports.map((differences, i) => leadReport(String(i), differences));
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  const [shown, events] = [await listed(workspace), await eventsOf(workspaceId)];
  expect(shown).toHaveLength(reports.length);
  return ids.map((id) => ({
    lead: shown.find((one) => one.id === id) as Lead,
    event: events.find(({ data }) => data.id === id),
  }));
}

/** Records one lead in a new workspace, and returns it from the API and from its event. */
async function recordAndReadOne(differences: Partial<LeadReport>) {
  const [read] = await recordAndRead([differences]);
  return read as NonNullable<typeof read>;
}

const nested = (depth: number) =>
  JSON.parse(`${'{"a":'.repeat(depth)}1${"}".repeat(depth)}`) as Record<string, never>;

describe("recordLeads", () => {
  test("returns the ids in the order of the leads, and announces each one as the API shows it", async () => {
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const startedAt = Date.now();
    const leads = Array.from({ length: 5 }, (_, i) =>
      leadReport(String(i), { name: `Lead ${i}`, createdAt: `2026-01-0${i + 1}T00:00:00Z` }),
    );
    const { ids, ...rest } = await Platform.recordLeads({ workspaceId, leads });
    expect(rest).toEqual({ created: 5 });
    const shown = (await listed(workspace)).toReversed();
    expect(shown.map(({ id, name }) => [id, name])).toEqual(
      leads.map(({ name }, i) => [ids[i], name]),
    );
    const events = await eventsOf(workspaceId);
    const byId = (a: { data: { id: string } }, b: { data: { id: string } }) =>
      ids.indexOf(a.data.id) - ids.indexOf(b.data.id);
    expect(events.toSorted(byId)).toEqual(
      shown.map((data) => ({
        id: expect.stringMatching(/^evt_[0-9a-z]+$/),
        type: "lead.created",
        created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        data,
      })),
    );
    expect(new Set(events.map(({ id }) => id)).size).toBe(5);
    // An event's id says when.
    for (const { id } of events) expect(id > eventIdAt(startedAt)).toBe(true);
  });

  test("gives the same reference the same id, changes nothing and causes no second event", async () => {
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const record = (...leads: LeadReport[]) => Platform.recordLeads({ workspaceId, leads });
    const { ids } = await record(leadReport("1", { name: "First" }));
    const before = [await listed(workspace), await eventsOf(workspaceId)];
    const again = leadReport("1", {
      name: "Second",
      source: "crm",
      email: "x@example.com",
      customFields: { a: 1 },
      createdAt: "2020-01-01T00:00:00Z",
    });
    expect(await record(again)).toEqual({ ids, created: 0 });
    expect([await listed(workspace), await eventsOf(workspaceId)]).toEqual(before);
    const more = await record(again, leadReport("2"), leadReport("2"), leadReport("3"));
    expect(more.ids[0]).toBe(ids[0]);
    expect(more.created).toBe(2);
    expect(await eventsOf(workspaceId)).toHaveLength(3);
  });

  test("announces a lead once if several callers report it concurrently", async () => {
    const { workspaceId } = await openListeningWorkspace();
    const leads = [leadReport("1"), leadReport("2")];
    const replies = await Promise.all(
      Array.from({ length: 10 }, () => Platform.recordLeads({ workspaceId, leads })),
    );
    for (const { ids } of replies) expect(ids).toEqual(replies[0]?.ids);
    expect(replies.map(({ created }) => created).toSorted()).toEqual([...Array(9).fill(0), 2]);
    expect(await eventsOf(workspaceId)).toHaveLength(2);
  });

  test("applies the first of several reports of one reference in a call, once", async () => {
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const { ids } = await Platform.recordLeads({
      workspaceId,
      leads: [leadReport("1", { name: "A" }), leadReport("2"), leadReport("1", { name: "B" })],
    });
    expect(ids[2]).toBe(ids[0]);
    expect(ids[1]).not.toBe(ids[0]);
    const shown = await listed(workspace);
    expect(shown).toHaveLength(2);
    expect(shown.find(({ id }) => id === ids[0])?.name).toBe("A");
    expect(await eventsOf(workspaceId)).toHaveLength(2);
  });

  test.each([
    [{ source: "fax" }, "leads[1].source: "],
    [{ name: 1 }, "leads[1].name: "],
    [{ name: "a\0b" }, "leads[1].name: must be well-formed text"],
    [{ email: "a\ud800" }, "leads[1].email: must be well-formed text"],
    [{ reference: "\0" }, "leads[1].reference: must be well-formed text"],
    [{ agent: { reference: "1", name: "\0" } }, "leads[1].agent.name: must be well-formed text"],
    [{ customFields: [] }, "leads[1].customFields: "],
    [{ customFields: { a: { b: [1, Number.NaN] } } }, "leads[1].customFields.a.b[1]: must be JSON"],
    [{ customFields: { a: 1n } }, "leads[1].customFields.a: "],
    [{ customFields: { a: new Date(0) } }, "leads[1].customFields.a: "],
    [{ customFields: { ids: [1, 2 ** 53] } }, "leads[1].customFields.ids[1]: must be between"],
    [{ customFields: { id: -(2 ** 53) } }, ".id: must be between -9007199254740991 and 9007"],
    [{ customFields: { id: 1e21 } }, "leads[1].customFields.id: must be between"],
    [{ customFields: { note: "a\0b" } }, "leads[1].customFields.note: must be well-formed text"],
    [{ customFields: { note: "\ud83d" } }, "leads[1].customFields.note: must be well-formed text"],
    [{ customFields: { "a\0b": 1 } }, "leads[1].customFields: must have names of well-formed text"],
    [
      { customFields: { list: [{ "\ude00": 1 }] } },
      "leads[1].customFields.list[0]: must have names",
    ],
    [{ customFields: { list: [nested(31)] } }, "leads[1].customFields.list[0].a"],
    [{ customFields: { list: [nested(31)] } }, ": must be nested at most 32 deep"],
    [{ customFields: nested(1_200) }, "leads[1].customFields.a.a.a"],
    [{ createdAt: "2026-01-01" }, "leads[1].createdAt: Invalid ISO datetime"],
    [{ createdAt: "2026-01-01T00:00:00" }, "leads[1].createdAt: Invalid ISO datetime"],
    [{ createdAt: "2026-13-01T00:00:00Z" }, "leads[1].createdAt: Invalid ISO datetime"],
    [{ createdAt: "9999-12-31T23:59:59-23:59" }, "leads[1].createdAt: "],
    [{ createdAt: "0000-01-01T00:00:00+23:59" }, "leads[1].createdAt: "],
    [{ created_at: "2026-01-01T00:00:00Z" }, 'leads[1]: Unrecognized key: "created_at"'],
  ])("says which lead is wrong and where, and writes none", async (differences, message) => {
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const leads = [leadReport("1"), leadReport("2", differences as Partial<LeadReport>)];
    const error = await errorOf(Platform.recordLeads({ workspaceId, leads }));
    expect(error).toMatch(/^recordLeads: leads\[1\]/);
    expect(error).toContain(message);
    expect([await listed(workspace), await eventsOf(workspaceId)]).toEqual([[], []]);
  });

  test("says what is wrong without the value, which may be personal", async () => {
    const { workspaceId } = await openListeningWorkspace();
    const leads = [leadReport("1", { email: "camille@example.com\0" })];
    const error = await errorOf(Platform.recordLeads({ workspaceId, leads }));
    expect(error).toContain("leads[0].email");
    expect(error).not.toContain("camille");
  });
});

describe("the time of a lead", () => {
  test("is shown in UTC, to the millisecond", async () => {
    const times = [
      ["2026-03-14T09:26:53.589Z", "2026-03-14T09:26:53.589Z"],
      ["2026-03-14T09:26:53Z", "2026-03-14T09:26:53.000Z"],
      ["2026-03-14T10:26:53+01:00", "2026-03-14T09:26:53.000Z"],
      ["2026-01-01T00:30:00+05:30", "2025-12-31T19:00:00.000Z"],
      ["2025-12-31T23:30:00-01:00", "2026-01-01T00:30:00.000Z"],
      ["2026-03-14T09:26:53.589999Z", "2026-03-14T09:26:53.589Z"],
      ["1969-12-31T23:59:59Z", "1969-12-31T23:59:59.000Z"],
    ] as const;
    const read = await recordAndRead(times.map(([createdAt]) => ({ createdAt })));
    expect(read.map(({ lead }) => lead.created_at)).toEqual(times.map(([, shown]) => shown));
  });

  test("is that of its report if not given", async () => {
    const startedAt = new Date().toISOString();
    for (const { lead, event } of await recordAndRead([{}, { createdAt: null }])) {
      expect(lead.created_at >= startedAt && lead.created_at <= new Date().toISOString()).toBe(
        true,
      );
      expect(event?.created_at).toBe(lead.created_at);
    }
  });
});

describe("the text of a lead", () => {
  test("is returned unchanged, in the API and in its event", async () => {
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
    const reports = texts.map((name) => ({ name, customFields: { [name]: name } }));
    for (const [i, { lead, event }] of (await recordAndRead(reports)).entries()) {
      const { name, customFields: custom_fields } = reports[i] ?? {};
      expect(lead).toMatchObject({ name, custom_fields });
      expect(event?.data).toEqual(lead);
    }
  });
});

describe("the custom fields of a lead", () => {
  test("are returned unchanged, whatever JSON they are, in the API and in the event", async () => {
    const customFields = {
      "": "empty key",
      "with space.and-dots": "x",
      clé: "valeur",
      "0": "zero",
      constructor: "c",
      toString: "t",
      null: null,
      booleans: [true, false],
      numbers: [0, -1, 1.5, 0.1, 1e-7, 5e-324],
      integers: [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, 4_294_967_296],
      digits: "12345678901234567890",
      nested: { a: { b: [{ c: [[], {}, [null]] }] } },
      phone: "+33600000000",
      date: "2026-01-01T00:00:00+01:00",
    };
    const { lead, event } = await recordAndReadOne({ customFields });
    expect(lead.custom_fields).toEqual(customFields);
    expect(event?.data).toEqual(lead);
  });

  test.each(['{"z":1,"a":2,"m":{"y":1,"b":2}}', '{"a":1,"__proto__":{"b":2},"n":{"__proto__":3}}'])(
    "are returned in their order, even if named __proto__: %s",
    async (json) => {
      const { lead } = await recordAndReadOne({ customFields: JSON.parse(json) });
      expect(JSON.stringify(lead.custom_fields)).toBe(json);
    },
  );

  test("are returned even if nested 32 levels deep", async () => {
    const { lead } = await recordAndReadOne({ customFields: nested(32) });
    expect(lead.custom_fields).toEqual(nested(32));
  });
});

describe("the size of a lead", () => {
  const bytesOf = (value: unknown) => new TextEncoder().encode(JSON.stringify(value)).length;

  /** Custom fields that make the JSON of a lead this many bytes long. */
  const sized = (bytes: number, character: string, each: number) => {
    const rest = bytes - bytesOf(leadReport("1", { customFields: { t: "" } }));
    const count = Math.floor(rest / each);
    return { t: character.repeat(count) + "x".repeat(rest - count * each) };
  };

  test.each([
    ["letters", "x", 1],
    ["quotes, which JSON doubles", '"', 2],
    ["backslashes, which JSON doubles", "\\", 2],
    ["control characters, which JSON writes in six bytes", "\u0001", 6],
    ["characters of three bytes", "漢", 3],
    ["characters of four bytes", "😀", 4],
  ])("is at most 64 KiB of JSON: %s", async (_, character, each) => {
    const customFields = sized(65_536, character, each);
    const { lead, event } = await recordAndReadOne({ customFields });
    expect(lead.custom_fields).toEqual(customFields);
    expect(event?.data).toEqual(lead);
    const workspace = await openListeningWorkspace();
    const { workspaceId } = workspace;
    const tooLarge = leadReport("1", { customFields: sized(65_537, character, each) });
    const leads = [leadReport("2"), tooLarge];
    expect(await errorOf(Platform.recordLeads({ workspaceId, leads }))).toContain(
      "recordLeads: leads[1]: must be at most 65536 bytes of JSON",
    );
    expect(await listed(workspace)).toEqual([]);
  });
});
