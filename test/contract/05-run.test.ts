import { describe, expect, test } from "vitest";
import { A_RUN, DATE_TIME, idOf, openWorkspace, type Page, type Run } from "./support.ts";

/** Records a run of a new automation, about a new lead, and reads it. */
async function recorded(differences: object = {}) {
  const { api, recordAutomation, recordLead, recordRun } = await openWorkspace();
  const automationId = await recordAutomation();
  const leadId = await recordLead();
  await recordRun(automationId, { leadId, ...differences });
  const { body } = await api.get<Page<Run>>("/runs");
  return { automationId, leadId, run: body.data[0] as Run };
}

describe("Run", () => {
  test("A run has all its fields, and no others", async () => {
    expect((await recorded()).run).toEqual(A_RUN);
  });

  test("`id` has the prefix `run_`", async () => {
    expect((await recorded()).run.id).toEqual(idOf("run"));
  });

  test("`automation_id` is the id of its automation, with the prefix `aut_`", async () => {
    const { automationId, run } = await recorded();
    expect(run.automation_id).toEqual(idOf("aut"));
    expect(run.automation_id).toBe(automationId);
  });

  test.each(["success", "partial", "failed"])("`status` can be `%s`", async (status) => {
    expect((await recorded({ status })).run.status).toBe(status);
  });

  test.each(["comment", "story_reply", "message", "lead_ads", "crm_event"])(
    "`trigger_type` can be `%s`",
    async (triggerType) => {
      expect((await recorded({ triggerType })).run.trigger_type).toBe(triggerType);
    },
  );

  test("`occurred_at` is a date-time", async () => {
    const { run } = await recorded({ occurredAt: "2026-03-14T09:26:53Z" });
    expect(run.occurred_at).toEqual(DATE_TIME);
    expect(Date.parse(run.occurred_at)).toBe(Date.parse("2026-03-14T09:26:53Z"));
  });

  test("`actions` is an array of objects with the strings `type` and `status`", async () => {
    const actions = [
      { type: "reply_to_comment", status: "success" },
      { type: "send_message", status: "failed" },
    ];
    expect((await recorded({ actions })).run.actions).toEqual(actions);
  });

  test("Neither `type` nor `status` of an action is required", async () => {
    const actions = [{ type: "reply_to_comment" }, { status: "success" }, {}];
    expect((await recorded({ actions })).run.actions).toEqual(actions);
  });

  test("`actions` is an empty array if there were none", async () => {
    expect((await recorded()).run.actions).toEqual([]);
  });

  test("`lead_id` is the id of its lead, with the prefix `lea_`", async () => {
    const { leadId, run } = await recorded();
    expect(run.lead_id).toEqual(idOf("lea"));
    expect(run.lead_id).toBe(leadId);
  });

  test("`lead_id` is null if the run is about no lead", async () => {
    expect((await recorded({ leadId: null })).run.lead_id).toBeNull();
  });
});
