import { describe, expect, test } from "vitest";
import { deployment, openWorkspace, type Page, send } from "./support.ts";

describe("Versioning", () => {
  test("The version is carried by the path prefix `/v1`", async () => {
    const { apiKey } = await openWorkspace();
    const headers = { Authorization: `Bearer ${apiKey}` };
    const statuses = [];
    for (const path of ["/v1/leads", "/leads", "/v2/leads"])
      statuses.push((await fetch(deployment.url + path, { headers })).status);
    expect(statuses).toEqual([200, 404, 404]);
  });

  test("The contract version is 1.0.0-draft.2, where a document is published", async (t) => {
    const { status, body } = await send<{ info?: { version: string } }>("GET", "/openapi.json");
    if (status !== 200) t.skip("this implementation publishes no document");
    expect(body.info?.version).toBe("1.0.0-draft.2");
  });

  test("`provider` is a free string whose set of values grows", async () => {
    const { api, recordAutomation } = await openWorkspace();
    await recordAutomation({ provider: "a network to come" });
    const { body } = await api.get<Page>("/automations");
    expect(body.data).toMatchObject([{ provider: "a network to come" }]);
  });
});
