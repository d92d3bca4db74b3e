import { describe, expect, test } from "vitest";
import { A_LEAD, DATE_TIME, idOf, type Lead, openWorkspace, type Page } from "./support.ts";

/** Records a lead and reads it. */
async function recorded(differences: object = {}): Promise<Lead> {
  const { api, recordLead } = await openWorkspace();
  await recordLead(differences);
  const { body } = await api.get<Page<Lead>>("/leads");
  return body.data[0] as Lead;
}

describe("Lead", () => {
  test("A lead has all its fields, and no others", async () => {
    expect(await recorded()).toEqual(A_LEAD);
  });

  test("`id` has the prefix `lea_`", async () => {
    expect((await recorded()).id).toEqual(idOf("lea"));
  });

  test.each(["widget", "social", "telephony", "lead_ads", "crm"])(
    "`source` can be `%s`",
    async (source) => {
      expect((await recorded({ source })).source).toBe(source);
    },
  );

  test("`agent_id` has the prefix `agt_`", async () => {
    expect((await recorded()).agent_id).toEqual(idOf("agt"));
  });

  test.each([
    ["name", "Zoë Ørsted"],
    ["email", "zoe@example.com"],
    ["phone", "+33 6 00 00 00 00"],
  ] as const)("`%s` is a string", async (field, value) => {
    expect((await recorded({ [field]: value }))[field]).toBe(value);
  });

  test.each(["name", "email", "phone"] as const)("`%s` is null if it is unknown", async (field) => {
    expect((await recorded())[field]).toBeNull();
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

  test("`custom_fields` is an empty object if there are none", async () => {
    expect((await recorded()).custom_fields).toEqual({});
  });

  test("`created_at` is a date-time", async () => {
    const { created_at } = await recorded({ createdAt: "2026-03-14T09:26:53Z" });
    expect(created_at).toEqual(DATE_TIME);
    expect(Date.parse(created_at)).toBe(Date.parse("2026-03-14T09:26:53Z"));
  });
});
