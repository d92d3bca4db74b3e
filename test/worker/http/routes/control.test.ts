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
  success,
} from "../../../support/api.ts";
import { isolated, subscribe } from "../../../support/deliveries.ts";
import { interposed } from "../../../support/interposed.ts";
import { lossyDatabase } from "../../../support/lost-reply.ts";
import { useThreeDatabases, WORKSPACE_DB } from "../../../support/placement.ts";

useThreeDatabases();

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
    path,
    read: async () => (await api.get<Automation>(path)).body,
    control: (to: AutomationStatus) => api.patch<Automation>(path, { status: to }),
  };
}

/** The statuses that the events announce, in their order. */
async function announced(workspaceId: string) {
  const events = await eventsOf(workspaceId);
  return events.map(({ data }) => "status" in data && data.status);
}

describe("PATCH /automations/{id}", () => {
  test("sends a wake-up message for its subscribers as soon as it has responded", async () => {
    const { workspaceId, apiKey, path } = await openAutomation("active");
    const { id } = await subscribe(workspaceId, { events: ["automation.status_changed"] });
    const { env, fast } = isolated();
    await openApi(apiKey, deployedAs(env)).patch(path, { status: "paused" });
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
      const { updated_at } = answer.body;
      expect(answer).toEqual(success(200, { ...before, status: to, updated_at }));
      expect(updated_at >= startedAt && updated_at <= new Date().toISOString()).toBe(true);
      expect(await read()).toEqual(answer.body);
      const id = expect.stringMatching(/^evt_[0-9a-z]+$/);
      const type = "automation.status_changed";
      const event = { id, type, created_at: updated_at, data: answer.body };
      expect(await eventsOf(workspaceId)).toEqual([event]);
    },
  );

  test("dates the change later than a report from a clock that is ahead", async () => {
    const { workspaceId, api } = await openListeningWorkspace();
    const aheadAt = Date.now() + 60_000;
    const updatedAt = new Date(aheadAt).toISOString();
    const id = await recordAutomation(workspaceId, { status: "active", updatedAt });
    const answer = await api.patch<Automation>(`/v1/automations/${id}`, { status: "paused" });
    const laterAt = new Date(aheadAt + 1).toISOString();
    expect(answer).toMatchObject({ status: 200, body: { updated_at: laterAt } });
  });

  // test/contract/08-states.test.ts has the moves from draft and error, which are rejected.
  test.each(["active", "paused"] as const)(
    "changes nothing if the status stays %s",
    async (status) => {
      const { workspaceId, read, control } = await openAutomation(status);
      const before = await read();
      expect(before.updated_at).toBe(LONG_AGO);
      expect(await control(status)).toEqual(success(200, before));
      expect(await read()).toEqual(before);
      expect(await eventsOf(workspaceId)).toEqual([]);
    },
  );
});

// test/worker/recording/retries.test.ts has the reports and removals that come in between.
describe("clients that race on one automation", () => {
  test("cause an event for each real change", async () => {
    const { workspaceId, read, control } = await openAutomation("active");
    const targets = Array.from(
      { length: 20 },
      (_, i): AutomationStatus => (i % 3 ? "paused" : "active"),
    );
    const answers = await Promise.all(targets.map((to) => control(to)));
    expect(answers).toMatchObject(targets.map((status) => ({ status: 200, body: { status } })));
    const changes = await announced(workspaceId);
    // Starting from active, real changes alternate: paused, active, paused…
    expect(changes).toEqual(changes.map((_, i) => (i % 2 ? "active" : "paused")));
    expect((await read()).status).toBe(changes.at(-1));
  });

  test.each([
    [49, 200],
    [50, 500],
  ])("and are overtaken by %i changes get %i", async (others, status) => {
    const { apiKey, path } = await openAutomation("active");
    let changes = 0;
    const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
      if (changes < others && texts.some((text) => /^insert into "automations"/i.test(text)))
        await WORKSPACE_DB.prepare("UPDATE automations SET provider = ? WHERE id = ?")
          .bind(`provider ${++changes}`, path.split("/").at(-1))
          .run();
      return go();
    });
    const api = openApi(apiKey, deployedWith({ DB }));
    expect((await api.patch(path, { status: "paused" })).status).toBe(status);
  });

  test("get times in the order of the changes, so that the latest event has the final status", async () => {
    const { workspaceId, apiKey, path, read, control } = await openAutomation("active");
    const DB = lossyDatabase("request", async () => {
      await new Promise((resolve) => setTimeout(resolve, 5));
      await control("paused");
      await control("active");
    });
    const overtaken = openApi(apiKey, deployedWith({ DB }));
    expect((await overtaken.patch(path, { status: "paused" })).status).toBe(200);
    expect(await announced(workspaceId)).toEqual(["paused", "active", "paused"]);
    const events = await eventsOf(workspaceId);
    const times = events.map(({ created_at }) => created_at);
    expect(times).toEqual(times.toSorted());
    expect(events.at(-1)?.data).toEqual(await read());
  });

  test("and on a report: a name that one with the same time brings in between is kept", async () => {
    const { workspaceId, apiKey } = await openListeningWorkspace();
    const report = (name: string) =>
      recordAutomation(workspaceId, {
        reference: "a",
        agent: { reference: "agent-1", name },
        updatedAt: LONG_AGO,
      });
    const id = await report("Agence Lumière");
    const DB = lossyDatabase("request", () => report("Agence Soleil"));
    const late = openApi(apiKey, deployedWith({ DB }));
    const answer = await late.patch(`/v1/automations/${id}`, { status: "paused" });
    const renamed = { agent_name: "Agence Soleil", status: "paused" };
    expect(answer).toMatchObject({ status: 200, body: renamed });
    expect((await late.get(`/v1/automations/${id}`)).body).toMatchObject(renamed);
  });
});
