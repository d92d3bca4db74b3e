import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { toPersonalData } from "../../../src/records/person.ts";
import { errorOf, leadReport, openWorkspace } from "../../support/api.ts";
import { damageLead } from "../../support/record.ts";

const { Platform } = exports;
const CAMILLE = {
  name: "Camille Durand",
  email: "Camille.Durand@example.com",
  phone: "+33 6 12 34 56 78",
  customFields: { budget: 10 },
};

/** A workspace with two leads of Camille's and one of somebody else's. */
async function withPeople() {
  const { workspaceId } = await openWorkspace();
  const { ids } = await Platform.recordLeads({
    workspaceId,
    leads: [
      leadReport("first", { ...CAMILLE, createdAt: "2026-01-01T00:00:00Z" }),
      leadReport("second", {
        email: " camille.durand@EXAMPLE.com ",
        phone: "06.12.34.56.78",
        createdAt: "2026-01-02T00:00:00Z",
      }),
      leadReport("other", { email: "marc@example.com", phone: "+33612345679" }),
      leadReport("nobody"),
    ],
  });
  return { workspaceId, ids };
}

/** The ids found, in order, over all pages; and how many pages there were. */
async function findAll(input: Parameters<typeof Platform.findLeads>[0]) {
  const found: string[] = [];
  let cursor: string | null = null;
  for (let pages = 1; ; pages++) {
    const page: { items: { id: string }[]; nextCursor: string | null } = await Platform.findLeads({
      ...input,
      cursor,
    });
    found.push(...page.items.map(({ id }) => id));
    cursor = page.nextCursor;
    if (cursor === null) return { found, pages };
  }
}

describe("findLeads", () => {
  test("shows what is known about the person", async () => {
    const { workspaceId, ids } = await withPeople();
    expect(await Platform.findLeads({ workspaceId, reference: "first" })).toEqual({
      items: [
        {
          id: ids[0],
          source: "social",
          agentId: expect.stringMatching(/^agt_/),
          ...toPersonalData(CAMILLE),
          createdAt: "2026-01-01T00:00:00.000Z",
        },
      ],
      nextCursor: null,
      unreadable: [],
    });
    const none = { items: [], nextCursor: null, unreadable: [] };
    expect(await Platform.findLeads({ workspaceId, reference: "FIRST" })).toEqual(none);
  });

  test("finds a person in every spelling, and nobody else", async () => {
    const { workspaceId, ids } = await withPeople();
    for (const person of [
      { email: "camille.durand@example.com" },
      { email: " CAMILLE.DURAND@EXAMPLE.COM" },
      { phone: "+33612345678" },
      { phone: "0033 6 12 34 56 78" },
      { phone: "06 12 34 56 78" },
    ])
      expect((await findAll({ workspaceId, ...person })).found).toEqual([ids[1], ids[0]]);
    for (const person of [
      { email: "durand@example.com" },
      { email: "camille.durand@example.co" },
      { phone: "5678" },
      { phone: "34 56 78" },
      { phone: "+33712345678" },
    ])
      expect((await findAll({ workspaceId, ...person })).found).toEqual([]);
  });

  test("finds nobody in another workspace", async () => {
    await withPeople();
    const { workspaceId } = await openWorkspace();
    for (const person of [{ email: CAMILLE.email }, { reference: "first" }])
      expect((await findAll({ workspaceId, ...person })).found).toEqual([]);
  });

  test("names a lead that cannot be decrypted, and finds the others", async () => {
    const { workspaceId, ids } = await withPeople();
    await damageLead(ids[1]);
    const damaged = { unreadable: [ids[1]], nextCursor: null };
    expect(await Platform.findLeads({ workspaceId, email: CAMILLE.email })).toEqual({
      items: [expect.objectContaining({ id: ids[0] })],
      ...damaged,
    });
    const named = await Platform.findLeads({ workspaceId, reference: "second" });
    expect(named).toEqual({ items: [], ...damaged });
  });

  test("reads a bounded number of leads per call, so that pages may be empty", async () => {
    const { workspaceId, ids } = await withPeople();
    for (let i = 0; i < 52; i++) {
      const leads = Array.from({ length: 100 }, (_, j) => leadReport(`filler-${i}-${j}`));
      await Platform.recordLeads({ workspaceId, leads });
    }
    const first = await Platform.findLeads({ workspaceId, email: CAMILLE.email });
    expect(first).toEqual({ items: [], nextCursor: expect.any(String), unreadable: [] });
    const { found, pages } = await findAll({ workspaceId, email: CAMILLE.email });
    expect({ found, pages }).toEqual({ found: [ids[1], ids[0]], pages: 2 });
  });

  test("returns leads of the largest size, all of them", async () => {
    const { workspaceId } = await openWorkspace();
    const note = "é".repeat(30_000);
    for (let i = 0; i < 4; i++)
      await Platform.recordLeads({
        workspaceId,
        leads: Array.from({ length: 10 }, (_, j) =>
          leadReport(`large-${i}-${j}`, { email: CAMILLE.email, customFields: { note } }),
        ),
      });
    const { found } = await findAll({ workspaceId, email: CAMILLE.email });
    expect(new Set(found).size).toBe(40);
    expect(found).toHaveLength(40);
  });

  test("says which parameter is wrong", async () => {
    const { workspaceId } = await openWorkspace();
    const one = "findLeads: expected one of email, phone and reference";
    expect(await errorOf(Platform.findLeads({ workspaceId }))).toBe(one);
    const two = Platform.findLeads({ workspaceId, email: "a@example.com", reference: "1" });
    expect(await errorOf(two)).toBe(one);
    expect(await errorOf(Platform.findLeads({ workspaceId, phone: "none" }))).toBe(
      "findLeads: phone: must have a digit",
    );
    const other = Platform.findLeads({ workspaceId, email: "a@example.com", cursor: "x" });
    expect(await errorOf(other)).toBe("findLeads: cursor: is not a cursor of this list");
  });
});

test.each([
  ["a Danish number with and without country code", "12 34 56 78", "+45 12 34 56 78"],
  ["a Belgian one", "02 123 45 67", "+32 2 123 45 67"],
  ["a Luxembourg one", "621 123 456", "+352 621 123 456"],
  ["an optional trunk zero", "+33 (0)6 12 34 56 78", "+33612345678"],
  ["an extension", "01 23 45 67 89 poste 12", "+33 1 23 45 67 89"],
  [
    "full-width digits",
    "\uff10\uff16\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18",
    "0612345678",
  ],
  ["Arabic digits", "\u0660\u0666\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668", "0612345678"],
])("a person is found by the other spelling of %s", async (_, stored, asked) => {
  const { workspaceId } = await openWorkspace();
  const leads = [leadReport("x", { phone: stored }), leadReport("y", { phone: "+33699999999" })];
  const { ids } = await Platform.recordLeads({ workspaceId, leads });
  expect((await findAll({ workspaceId, phone: asked })).found).toEqual([ids[0]]);
});
