import { beforeAll, describe, expect, test } from "vitest";
import {
  A_LEAD,
  DATE_TIME,
  type Lead,
  openWorkspace,
  type Page,
  type Workspace,
} from "./support.ts";

let workspace: Workspace;
/** A lead without what may be unknown. */
let usual: Lead;
beforeAll(async () => {
  workspace = await openWorkspace();
  usual = await recorded();
});

/** Records a lead and reads it. */
async function recorded(differences: object = {}): Promise<Lead> {
  const id = await workspace.recordLead(differences);
  const { body } = await workspace.api.get<Page<Lead>>("/leads?limit=100");
  return body.data.find((lead) => lead.id === id) as Lead;
}

describe("Lead", () => {
  test("A lead has all its fields, and no others", () => {
    expect(usual).toEqual(A_LEAD);
  });

  test.each(["widget", "social", "telephony", "lead_ads", "crm"])(
    "`source` can be `%s`",
    async (source) => {
      expect((await recorded({ source })).source).toBe(source);
    },
  );

  test.each([
    ["name", "Zoë Ørsted"],
    ["email", "zoe@example.com"],
    ["phone", "+33 6 00 00 00 00"],
  ] as const)("`%s` is a string", async (field, value) => {
    expect((await recorded({ [field]: value }))[field]).toBe(value);
  });

  test.each(["name", "email", "phone"] as const)("`%s` is null if it is unknown", (field) => {
    expect(usual[field]).toBeNull();
  });

  test("`custom_fields` is an object, as the platform reported it", async () => {
    const customFields = {
      budget: 10_000,
      visite: true,
      notes: ["a", null],
      "clé à part": { b: "ç" },
    };
    expect((await recorded({ customFields })).custom_fields).toEqual(customFields);
  });

  test("`custom_fields` is an empty object if there are none", () => {
    expect(usual.custom_fields).toEqual({});
  });

  test("`created_at` is a date-time", async () => {
    const { created_at } = await recorded({ createdAt: "2026-03-14T09:26:53Z" });
    expect(created_at).toEqual(DATE_TIME);
    expect(Date.parse(created_at)).toBe(Date.parse("2026-03-14T09:26:53Z"));
  });
});
