import { beforeAll, describe, expect, test } from "vitest";
import {
  AN_ERROR,
  type Answer,
  type Api,
  type Automation,
  anError,
  DATE_TIME,
  deployment,
  type Lead,
  OPERATIONS,
  openReceiver,
  openWorkspace,
  type Page,
  partialDeployment,
  platform,
  type Run,
  sendUnauthenticated,
  subscribe,
  type Webhook,
} from "./support.ts";

/** The API of a workspace in which there is nothing. */
let empty: Api;
beforeAll(async () => {
  empty = (await openWorkspace()).api;
});

describe("What the service does", () => {
  test("An API key selects the one workspace that it belongs to", async () => {
    for (const { api, recordLead } of [await openWorkspace(), await openWorkspace()]) {
      const id = await recordLead();
      const { body } = await api.get<Page>("/leads");
      expect(body.data.map((lead) => lead.id)).toEqual([id]);
    }
  });

  // 09-endpoints.test.ts has a response of each status.
  test.each(OPERATIONS)(
    "The response of `$operation` carries `Cache-Control: no-store`",
    async ({ method, path, body }) => {
      const { headers } = await empty.call(method, path, body);
      expect(headers.get("Cache-Control")).toBe("no-store");
    },
  );

  test("All dates and times are ISO 8601, UTC, with the suffix `Z`", async () => {
    const { api, recordAutomation, recordLead, recordRun } = await openWorkspace();
    const noon = "2026-03-14T12:00:00+02:00";
    const automationId = await recordAutomation({ updatedAt: noon });
    await recordLead({ createdAt: noon });
    await recordRun(automationId, { occurredAt: noon });
    const reported = [
      (await api.get<Page<Automation>>("/automations")).body.data[0]?.updated_at,
      (await api.get<Page<Lead>>("/leads")).body.data[0]?.created_at,
      (await api.get<Page<Run>>("/runs")).body.data[0]?.occurred_at,
    ];
    for (const time of reported)
      expect(Date.parse(time ?? "")).toBe(Date.parse("2026-03-14T10:00:00Z"));
    const receiver = openReceiver();
    const webhook = await subscribe(api, receiver.url);
    await recordLead();
    const [received] = await receiver.waitFor(1);
    await platform("disableWebhook", { webhookId: webhook.id });
    const disabled = (await api.get<Page<Webhook>>("/webhooks")).body.data[0]?.disabled_at;
    for (const time of [...reported, webhook.created_at, disabled, received?.delivery.created_at])
      expect(time).toEqual(DATE_TIME);
  });

  // 16-errors.test.ts has an error of each code.
  test.each(OPERATIONS)(
    "An error of `$operation` has the one body of all errors",
    async (operation) => {
      const { method, path, body } = operation;
      expect((await sendUnauthenticated(null, method, path, body)).body).toEqual(AN_ERROR);
    },
  );
});

describe("Availability of routes", () => {
  test.each(OPERATIONS)("`$operation` is served", async ({ method, path, body }) => {
    const answer = await empty.call<Partial<{ error: { code: string } }> | null>(
      method,
      path,
      body,
    );
    const served = [undefined, "automation_not_found", "webhook_not_found"];
    expect(served).toContain(answer.body?.error?.code);
  });

  test("A path unknown under the version prefix gives 404 `route_not_found`", async () => {
    for (const path of ["/unknown", "/lead", "/leads/lea_0", "/automations/aut_0/leads", ""])
      expect(await empty.get(path)).toMatchObject({
        status: 404,
        body: anError("route_not_found"),
      });
  });

  describe.skipIf(!partialDeployment)("on a deployment that serves the social family only", () => {
    const on = partialDeployment ?? deployment;
    let partial: Api;
    let unknown: Answer;
    beforeAll(async () => {
      partial = (await openWorkspace({ on })).api;
      unknown = await partial.get("/unknown");
    });

    describe.each(OPERATIONS.slice(2))("`$operation`, not yet served,", (operation) => {
      let answer: Answer;
      beforeAll(async () => {
        const { method, path, body } = operation;
        answer = await partial.call(method, path, body);
      });

      test("gives 404 `route_not_found`, never 405", () => {
        expect(answer).toMatchObject({ status: 404, body: anError("route_not_found") });
      });

      test("answers as an unknown path does", () => {
        expect(answer.body).toEqual(unknown.body);
      });
    });

    test.each([
      ["social_comments", "facebook"],
      ["social_story", "instagram"],
      ["social_messages", "instagram_page"],
      ["lead_ads", "facebook"],
    ])("`GET /automations` serves type `%s` of provider `%s`", async (type, provider) => {
      const { api, recordAutomation } = await openWorkspace({ on });
      const id = await recordAutomation({ type, provider });
      const { body } = await api.get<Page>("/automations");
      expect(body.data).toMatchObject([{ id, type, provider }]);
      expect((await api.get(`/automations/${id}`)).status).toBe(200);
    });

    test("Automations of type `crm_source` are not yet served", async () => {
      const { api, recordAutomation } = await openWorkspace({ on });
      const crm = { type: "crm_source", provider: "hubspot", name: "Devis" };
      await expect(recordAutomation(crm)).rejects.toThrow("SERVED_ROUTES");
      expect((await api.get<Page>("/automations")).body.data).toEqual([]);
    });
  });

  test("Automations of type `crm_source` are served", async () => {
    const { api, recordAutomation } = await openWorkspace();
    const id = await recordAutomation({ type: "crm_source", provider: "hubspot", name: "Devis" });
    expect((await api.get<Page>("/automations")).body.data).toMatchObject([
      { id, type: "crm_source" },
    ]);
  });
});
