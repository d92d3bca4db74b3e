import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { RECORD_MAX_BYTES } from "../../../src/contract/limits.ts";
import { connect } from "../../../src/db/client.ts";
import { findLeadIds, findPerson } from "../../../src/records/finding.ts";
import { toPersonalData } from "../../../src/records/person.ts";
import { leadReport, openWorkspace, Platform, pagesOf } from "../../support/api.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { damageLead, fillLeads } from "../../support/record.ts";

const CAMILLE = {
  name: "Camille Durand",
  email: "Camille.Durand@example.com",
  phone: "+33 6 12 34 56 78",
  customFields: { budget: 10 },
};
const NONE = { items: [], nextCursor: null, unreadable: [] };

/** A workspace with two leads of Camille's, one of somebody else's, and one of nobody's. */
async function withPeople() {
  const { workspaceId } = await openWorkspace();
  const second = { email: " camille.durand@EXAMPLE.com ", phone: "06.12.34.56.78" };
  const { ids } = await Platform.recordLeads({
    workspaceId,
    leads: [
      leadReport("first", { ...CAMILLE, createdAt: "2026-01-01T00:00:00Z" }),
      leadReport("second", { ...second, createdAt: "2026-01-02T00:00:00Z" }),
      leadReport("other", { email: "marc@example.com", phone: "+33612345679" }),
      leadReport("nobody"),
    ],
  });
  return { workspaceId, ids };
}

/** The ids found, in order, page by page. */
async function findAll(input: Parameters<typeof Platform.findLeads>[0]) {
  const pages = await pagesOf<{ id: string }>((cursor) => Platform.findLeads({ ...input, cursor }));
  return pages.map((items) => items.map(({ id }) => id));
}

describe("findLeads", () => {
  test("shows what is known about the person", async () => {
    const { workspaceId, ids } = await withPeople();
    const person = {
      id: ids[0],
      source: "social",
      agentId: expect.stringMatching(/^agt_/),
      ...toPersonalData(CAMILLE),
      createdAt: "2026-01-01T00:00:00.000Z",
    };
    const found = await Platform.findLeads({ workspaceId, reference: "first" });
    expect(found).toEqual({ ...NONE, items: [person] });
    expect(await Platform.findLeads({ workspaceId, reference: "FIRST" })).toEqual(NONE);
  });

  test("finds a person in every spelling, and nobody else, nor in another workspace", async () => {
    const { workspaceId, ids } = await withPeople();
    const other = await openWorkspace();
    const both = [ids[1], ids[0]];
    const accented = leadReport("accented", { email: "Zo\u00e9@example.com" });
    const zoe = (await Platform.recordLeads({ workspaceId, leads: [accented] })).ids;
    for (const [person, found] of [
      [{ email: "camille.durand@example.com" }, both],
      [{ email: " CAMILLE.DURAND@EXAMPLE.COM" }, both],
      [{ email: "zoe\u0301@example.com" }, zoe],
      [{ phone: "+33612345678" }, both],
      [{ phone: "0033 6 12 34 56 78" }, both],
      [{ phone: "06 12 34 56 78" }, both],
      [{ reference: "first" }, [ids[0]]],
      [{ email: "durand@example.com" }, []],
      [{ email: "camille.durand@example.co" }, []],
      [{ phone: "5678" }, []],
      [{ phone: "34 56 78" }, []],
      [{ phone: "+33712345678" }, []],
    ] as const)
      expect(await findAll({ workspaceId, ...person })).toEqual([found]);
    for (const person of [{ email: CAMILLE.email }, { phone: CAMILLE.phone }])
      expect(await findAll({ workspaceId: other.workspaceId, ...person })).toEqual([[]]);
    const reference = "first";
    expect(await findAll({ workspaceId: other.workspaceId, reference })).toEqual([[]]);
  });

  test("names a lead that cannot be decrypted, and finds the others", async () => {
    const { workspaceId, ids } = await withPeople();
    await damageLead(ids[1]);
    const damaged = { ...NONE, unreadable: [ids[1]] };
    const found = await Platform.findLeads({ workspaceId, email: CAMILLE.email });
    expect(found).toEqual({ ...damaged, items: [expect.objectContaining({ id: ids[0] })] });
    expect(await Platform.findLeads({ workspaceId, reference: "second" })).toEqual(damaged);
  });

  test("reads a bounded number of leads per call, so that pages may be empty", async () => {
    const { workspaceId, ids } = await withPeople();
    await fillLeads(workspaceId, 5_200);
    const pages = await findAll({ workspaceId, email: CAMILLE.email });
    expect(pages).toEqual([[], [ids[1], ids[0]]]);
  });

  test("reads few large leads that do not fit on a page", async () => {
    const { workspaceId } = await openWorkspace();
    await fillLeads(workspaceId, 600, RECORD_MAX_BYTES);
    const { DB, rows } = meteredDatabase();
    const wanted = { email: CAMILLE.email };
    const found = await findPerson(connect(DB), env.ENCRYPTION_KEYS, workspaceId, wanted, null);
    expect(found.unreadable.length).toBeGreaterThan(300);
    expect(rows.read).toBeLessThan(5_000);
  });

  test("returns leads of the largest size, all of them, but no more than a hundred and a page of a list", async () => {
    const { workspaceId } = await openWorkspace();
    const { email } = CAMILLE;
    const customFields = { note: "é".repeat(7_500) };
    const recorded: string[] = [];
    for (let i = 0; i < 3; i++) {
      const references = Array.from({ length: 50 }, (_, n) => `large-${i}-${n}`);
      const leads = references.map((each) => leadReport(each, { email, customFields }));
      recorded.push(...(await Platform.recordLeads({ workspaceId, leads })).ids);
    }
    const pages = await findAll({ workspaceId, email });
    expect(pages.flat().toSorted()).toEqual(recorded.toSorted());
    expect(pages[0]?.length).toBeLessThan(100 + 40);
  });
});

test("a person is found by another spelling of a phone number, and nobody else", async () => {
  const { workspaceId } = await openWorkspace();
  // A country code, an optional trunk zero, an extension, a word, several numbers, and digits of other scripts.
  const spellings = [
    ["12 34 56 79", "+45 12 34 56 79"],
    ["02 123 45 67", "+32 2 123 45 67"],
    ["621 123 456", "+352 621 123 456"],
    ["+7 (0)495 123 45 67", "+7 495 123 45 67"],
    ["+33 (0)6 12 34 56 78", "+33612345678"],
    ["+33 06 98 76 54 32", "+33698765432"],
    ["+352 0691 234 567", "+352 691 234 567"],
    // The fewest digits that two spellings share, and fewer that are equal.
    ["987 65 43", "+1 555 987 65 43"],
    ["3615", "36-15"],
    ["01/23/45/67/89 poste 12", "+33 1 23 45 67 89"],
    ["Fixe : 01/98/76/54/32 x12", "+33 1 98 76 54 32"],
    ["05/23/45/67/89 #12", "+33 5 23 45 67 89"],
    ["04/23/45/67/89;12", "+33 4 23 45 67 89"],
    ["06.11.22.33.44 / 01.55.66.77.88", "+33 6 11 22 33 44"],
    ["06 22 33 44 55\n+33 (1) 66-77-88-99", "+33 1 66 77 88 99"],
    ["\uff10\uff17\uff11\uff12\uff13\uff14\uff15\uff16", "07123456"],
    ["\u0660\u0668\u0661\u0662\u0660\u0664\u0665\u0669", "08120459"],
    ["\u06f0\u06f7\u06f1\u06f2\u06f0\u06f4\u06f5\u06f9", "07120459"],
  ] as const;
  const leads = spellings.map(([phone]) => leadReport(phone, { phone }));
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  for (const [i, [, phone]] of spellings.entries())
    expect(await findAll({ workspaceId, phone }), phone).toEqual([[ids[i]]]);
});

/** Calls of a method of strings that `work` makes: the text, and the argument. */
async function callsOf(method: "normalize" | "includes", work: () => Promise<unknown>) {
  const spy = vi.spyOn(String.prototype, method);
  try {
    await work();
    return spy.mock.calls.map(([argument], i) => [String(spy.mock.contexts[i]), argument] as const);
  } finally {
    spy.mockRestore();
  }
}

/** Marks that `normalize` has to sort, in a time that grows with the square of their number. */
const MARKS = "\u0301".repeat(500) + "\u0323".repeat(498);
const PAGE = { limit: 10, after: null };

test("no search normalizes a long run of combining marks, and a lead with one is found by its own text", async () => {
  const { workspaceId } = await openWorkspace();
  const db = connect(env.DB);
  const marked = { name: MARKS, email: `${MARKS}@x`, phone: MARKS.slice(450, 550) };
  const leads = [leadReport("marked", marked), leadReport("other", { email: "other@example.com" })];
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  const find = (wanted: object) => findPerson(db, env.ENCRYPTION_KEYS, workspaceId, wanted, null);
  const { email } = marked;
  expect((await find({ email })).items.map(({ id }) => id)).toEqual([ids[0]]);
  const calls = await callsOf("normalize", async () => {
    for (const wanted of [{ email }, { phone: "0612345678" }]) await find(wanted);
    for (const text of ["zzzz", "0612345678", MARKS.slice(400, 600)])
      await findLeadIds(db, env.ENCRYPTION_KEYS, workspaceId, text, PAGE);
  });
  const runs = calls.map(([text]) => text.match(/\p{M}+/u)?.[0].length ?? 0);
  expect(Math.max(...runs)).toBe(30);
});

test("a search compares each of its words once, although one character can become several", async () => {
  const { workspaceId } = await openWorkspace();
  const leads = [leadReport("arabic", { name: `${"\ufdfb".repeat(190)} \ufdfa` })];
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  const db = connect(env.DB);
  const text = "\ufdfa ".repeat(100);
  let found: unknown;
  const calls = await callsOf("includes", async () => {
    found = await findLeadIds(db, env.ENCRYPTION_KEYS, workspaceId, text, PAGE);
  });
  expect(found).toEqual({ items: ids, next: null });
  expect(calls.filter(([name]) => name.startsWith("جل")).map(([, word]) => word)).toEqual(
    "\ufdfa".normalize("NFKD").split(" "),
  );
});
