import { describe, expect, test } from "vitest";
import type { AutomationStatus } from "../../../../src/contract/enumerations.ts";
import type { Automation } from "../../../../src/records/automations.ts";
import {
  deployedAs,
  deployedWith,
  eventsOf,
  openApi,
  openListeningWorkspace,
  recordAutomation,
  refusal,
  success,
} from "../../../support/api.ts";
import { isolated, subscribe } from "../../../support/deliveries.ts";
import { WORKSPACE_DB } from "../../../support/placement.ts";
import { slowDatabase } from "../../../support/slow-database.ts";

const LONG_AGO = "2020-01-01T00:00:00.000Z";

/** A workspace with an automation that was last changed long ago. */
async function openAutomation(status: AutomationStatus) {
  const workspace = await openListeningWorkspace({ requestsPerWindow: 10_000 });
  const { workspaceId, api } = workspace;
  const id = await recordAutomation(workspaceId, { status, updatedAt: LONG_AGO });
  const path = `/v1/automations/${id}`;
  return {
    ...workspace,
    id,
    read: async () => (await api.get<Automation>(path)).body,
    control: (to: AutomationStatus) => api.patch<Automation>(path, { status: to }),
  };
}

describe("PATCH /automations/{id}", () => {
  test("wakes those who are owed the change as soon as it has answered", async () => {
    const { workspaceId, apiKey } = await openListeningWorkspace();
    const { id } = await subscribe(workspaceId, { events: ["automation.status_changed"] });
    const automationId = await recordAutomation(workspaceId, { status: "active" });
    const { env, fast } = isolated();
    const api = openApi(apiKey, deployedAs(env));
    await api.patch(`/v1/automations/${automationId}`, { status: "paused" });
    expect(fast).toMatchObject([{ subscriptionId: id, delaySeconds: 0 }]);
  });

  test.each([
    ["active", "paused"],
    ["paused", "active"],
  ] as const)(
    "changes an automation from %s to %s, returns it and announces it",
    async (from, to) => {
      const { workspaceId, read, control } = await openAutomation(from);
      const before = await read();
      const startedAt = new Date().toISOString();
      const answer = await control(to);
      expect(answer).toEqual(
        success(200, { ...before, status: to, updated_at: expect.any(String) }),
      );
      expect(answer.body.updated_at >= startedAt).toBe(true);
      expect(answer.body.updated_at <= new Date().toISOString()).toBe(true);
      expect(await read()).toEqual(answer.body);
      expect(await eventsOf(workspaceId)).toEqual([
        {
          id: expect.stringMatching(/^evt_[0-9a-z]+$/),
          type: "automation.status_changed",
          created_at: answer.body.updated_at,
          data: answer.body,
        },
      ]);
    },
  );

  test.each(["active", "paused"] as const)(
    "leaves an automation that is already %s unchanged: 200, the same updated_at, no event",
    async (status) => {
      const { workspaceId, read, control } = await openAutomation(status);
      const before = await read();
      expect(before.updated_at).toBe(LONG_AGO);
      expect(await control(status)).toEqual(success(200, before));
      expect(await read()).toEqual(before);
      expect(await eventsOf(workspaceId)).toEqual([]);
    },
  );

  test.each([
    ["draft", "active"],
    ["draft", "paused"],
    ["error", "active"],
    ["error", "paused"],
  ] as const)("refuses to change a %s to %s with 422, and changes nothing", async (from, to) => {
    const { workspaceId, read, control } = await openAutomation(from);
    const before = await read();
    expect(await control(to)).toEqual(refusal(422, "automation_not_controllable"));
    expect(await read()).toEqual(before);
    expect(await eventsOf(workspaceId)).toEqual([]);
  });

  test("controls a CRM automation like any other", async () => {
    const { workspaceId, api } = await openListeningWorkspace();
    const id = await recordAutomation(workspaceId, { type: "crm_source", name: "Relance" });
    const answer = await api.patch<Automation>(`/v1/automations/${id}`, { status: "paused" });
    expect(answer.body).toMatchObject({ id, type: "crm_source", status: "paused" });
  });
});

describe("clients that race on one automation", () => {
  test("to the same status: each gets 200 and the same automation, and there is one event", async () => {
    const { workspaceId, read, control } = await openAutomation("active");
    const answers = await Promise.all(Array.from({ length: 20 }, () => control("paused")));
    const now = await read();
    for (const answer of answers) expect(answer).toEqual(success(200, now));
    const events = await eventsOf(workspaceId);
    expect(events.map(({ data }) => data)).toEqual([now]);
  });

  test("twenty of them, with different statuses: never an event for a change that did not happen", async () => {
    const { workspaceId, id, read, control } = await openAutomation("active");
    const targets = Array.from({ length: 20 }, (_, i) => (i % 2 ? "active" : "paused"));
    const answers = await Promise.all(targets.map((to) => control(to)));
    expect(answers.map(({ status }) => status)).toEqual(targets.map(() => 200));
    expect(answers.map(({ body }) => body.status)).toEqual(targets);
    const events = await eventsOf(workspaceId);
    // Starting from active, real changes alternate: paused, active, paused…
    expect(events.map(({ data }) => "status" in data && data.status)).toEqual(
      events.map((_, i) => (i % 2 ? "active" : "paused")),
    );
    expect((await read()).status).toBe(events.length % 2 ? "paused" : "active");
    const row = WORKSPACE_DB.prepare("SELECT revision FROM automations WHERE id = ?").bind(id);
    expect(await row.first("revision")).toBe(1 + events.length);
  });

  test("get times in the order of the changes, so that the latest event has the final status", async () => {
    const { workspaceId, apiKey, id, read, control } = await openAutomation("active");
    const { db, reading, release } = slowDatabase();
    const slow = openApi(apiKey, deployedWith({ DB: db }));
    const overtaken = slow.patch(`/v1/automations/${id}`, { status: "paused" });
    await reading;
    await new Promise((resolve) => setTimeout(resolve, 5));
    await control("paused");
    await control("active");
    release();
    expect((await overtaken).status).toBe(200);
    const events = await eventsOf(workspaceId);
    expect(events.map(({ data }) => "status" in data && data.status)).toEqual([
      "paused",
      "active",
      "paused",
    ]);
    const times = events.map(({ created_at }) => created_at);
    expect(times).toEqual(times.toSorted());
    expect(events.at(-1)?.data).toEqual(await read());
  });
});
