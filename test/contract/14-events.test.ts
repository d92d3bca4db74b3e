import { describe, expect, test } from "vitest";
import { openListening, openReceiver, platform, subscribe } from "./support.ts";

describe("Events", () => {
  test.each(["widget", "social", "telephony", "lead_ads", "crm"])(
    "`lead.created` fires when a new lead is captured from source `%s`",
    async (source) => {
      const { recordLead, events } = await openListening();
      const id = await recordLead({ source });
      expect(await events(1)).toMatchObject([{ type: "lead.created", data: { id, source } }]);
    },
  );

  test.each(["success", "partial", "failed"])(
    "`run.completed` fires when an automation run finishes as `%s`",
    async (status) => {
      const { recordAutomation, recordRun, events } = await openListening();
      const id = await recordRun(await recordAutomation({ status: "draft" }), { status });
      expect(await events(1)).toMatchObject([{ type: "run.completed", data: { id, status } }]);
    },
  );

  test.each([
    ["activated", "paused", "active"],
    ["activated", "draft", "active"],
    ["activated", "error", "active"],
    ["paused", "active", "paused"],
  ])(
    "`automation.status_changed` fires when an automation is %s: `%s` to `%s`",
    async (_, from, to) => {
      const { recordAutomation, events } = await openListening();
      const id = await recordAutomation({ reference: "a", status: from });
      await recordAutomation({ reference: "a", status: to });
      expect(await events(1)).toMatchObject([{ type: "automation.status_changed", data: { id } }]);
    },
  );

  // 08-states.test.ts has one that failures disable.
  test("No event is emitted when an operator disables a subscription", async () => {
    const { api, events } = await openListening();
    const other = await subscribe(api, openReceiver().url);
    await platform("disableWebhook", { webhookId: other.id });
    expect(await events(0)).toEqual([]);
  });
});
