import { beforeAll, describe, expect, test } from "vitest";
import {
  A_RUN,
  DATE_TIME,
  idOf,
  openWorkspace,
  type Page,
  type Run,
  type Workspace,
} from "./support.ts";

let workspace: Workspace;
let [automationId, leadId] = ["", ""];
let usual: Run;
beforeAll(async () => {
  workspace = await openWorkspace();
  automationId = await workspace.recordAutomation();
  leadId = await workspace.recordLead();
  usual = await recorded();
});

/** Records a run of the automation, about the lead, and reads it. */
async function recorded(differences: object = {}): Promise<Run> {
  const id = await workspace.recordRun(automationId, { leadId, ...differences });
  const { body } = await workspace.api.get<Page<Run>>("/runs?limit=100");
  return body.data.find((run) => run.id === id) as Run;
}

describe("Run", () => {
  test("A run has all its fields, and no others", () => {
    expect(usual).toEqual(A_RUN);
  });

  test("`automation_id` is the id of its automation, with the prefix `aut_`", () => {
    expect(usual.automation_id).toEqual(idOf("aut"));
    expect(usual.automation_id).toBe(automationId);
  });

  test.each(["success", "partial", "failed"])("`status` can be `%s`", async (status) => {
    expect((await recorded({ status })).status).toBe(status);
  });

  test.each(["comment", "story_reply", "message", "lead_ads", "crm_event"])(
    "`trigger_type` can be `%s`",
    async (triggerType) => {
      expect((await recorded({ triggerType })).trigger_type).toBe(triggerType);
    },
  );

  test("`occurred_at` is a date-time", async () => {
    const run = await recorded({ occurredAt: "2026-03-14T09:26:53Z" });
    expect(run.occurred_at).toEqual(DATE_TIME);
    expect(Date.parse(run.occurred_at)).toBe(Date.parse("2026-03-14T09:26:53Z"));
  });

  test("`actions` is an array of objects with the strings `type` and `status`", async () => {
    const actions = [
      { type: "reply_to_comment", status: "success" },
      { type: "send_message", status: "failed" },
    ];
    expect((await recorded({ actions })).actions).toEqual(actions);
  });

  test("Neither `type` nor `status` of an action is required", async () => {
    const actions = [{ type: "reply_to_comment" }, { status: "success" }, {}];
    expect((await recorded({ actions })).actions).toEqual(actions);
  });

  test("`actions` is an empty array if there were none", () => {
    expect(usual.actions).toEqual([]);
  });

  test("`lead_id` is the id of its lead, with the prefix `lea_`", () => {
    expect(usual.lead_id).toEqual(idOf("lea"));
    expect(usual.lead_id).toBe(leadId);
  });

  test("`lead_id` is null if the run is about no lead", async () => {
    expect((await recorded({ leadId: null })).lead_id).toBeNull();
  });
});
