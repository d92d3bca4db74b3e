import { beforeAll, describe, expect, test } from "vitest";
import {
  AN_AUTOMATION,
  type Api,
  type Automation,
  anError,
  openWorkspace,
  type Page,
  SUCCESS,
} from "./support.ts";

/** The API of a workspace with three automations. */
let three: Api;
beforeAll(async () => {
  const { api, recordAutomation } = await openWorkspace();
  for (const _ of [1, 2, 3]) await recordAutomation();
  three = api;
});

describe("`GET /automations`", () => {
  test("The response's `data` are the automations of the workspace", async () => {
    const { api, recordAutomation } = await openWorkspace();
    const ids = [await recordAutomation(), await recordAutomation({ status: "draft" })];
    const { status, body } = await api.get<Page>("/automations");
    expect(status).toBe(200);
    expect(body.data).toEqual([AN_AUTOMATION, AN_AUTOMATION]);
    expect(body.data.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
  });

  test("`limit` can be 1", async () => {
    const { body } = await three.get<Page>("/automations?limit=1");
    expect(body.data).toHaveLength(1);
  });

  test.each(["0", "101", "-1", "1000000000000"])(
    "`limit=%s`, out of range, is refused with 400 `invalid_request`",
    async (limit) => {
      const answer = await three.get(`/automations?limit=${limit}`);
      expect(answer).toMatchObject({ status: 400, body: anError("invalid_request") });
      expect(answer.body.error.details.parameter).toBe("limit");
    },
  );

  test.each(["ten", "1.5"])(
    "`limit=%s`, not an integer, is refused with 400 `invalid_request`",
    async (limit) => {
      const answer = await three.get(`/automations?limit=${limit}`);
      expect(answer).toMatchObject({ status: 400, body: anError("invalid_request") });
      expect(answer.body.error.details.parameter).toBe("limit");
    },
  );

  test.each([
    ["`x`", "x"],
    ["`NULL`", "NULL"],
    ["`undefined`", "undefined"],
    ["JSON that was cut off", "eyJ9"],
    ["a zero byte", "%00"],
    ["3,000 characters", "a".repeat(3_000)],
  ])(
    "An unreadable `cursor`, such as %s, is rejected with 400 `invalid_request`",
    async (_, cursor) => {
      const answer = await three.get(`/automations?cursor=${cursor}`);
      expect(answer).toMatchObject({ status: 400, body: anError("invalid_request") });
      expect(answer.body.error.details.parameter).toBe("cursor");
    },
  );
});

describe("`GET /automations/{id}`", () => {
  test("The response is one automation", async () => {
    const { api, recordAutomation } = await openWorkspace();
    const id = await recordAutomation();
    const { status, body } = await api.get<Automation>(`/automations/${id}`);
    expect(status).toBe(200);
    expect(body).toEqual({ ...AN_AUTOMATION, id });
  });

  test("An automation that exists nowhere gives 404 `automation_not_found`", async () => {
    for (const id of ["aut_0", "aut_unknown", "unknown", "whk_0"])
      expect(await three.get(`/automations/${id}`)).toMatchObject({
        status: 404,
        body: anError("automation_not_found"),
      });
  });

  test("An automation of another workspace has the same response", async () => {
    const foreign = await (await openWorkspace()).recordAutomation();
    const [theirs, nobodys] = await Promise.all(
      [foreign, "aut_0"].map((id) => three.get(`/automations/${id}`)),
    );
    expect(theirs?.status).toBe(404);
    expect(theirs?.body).toEqual(nobodys?.body);
  });
});

describe("`PATCH /automations/{id}`", () => {
  test("An automation is paused", async () => {
    const { api, recordAutomation } = await openWorkspace();
    const path = `/automations/${await recordAutomation({ status: "active" })}`;
    expect((await api.patch(path, { status: "paused" })).status).toEqual(SUCCESS);
    expect((await api.get<Automation>(path)).body.status).toBe("paused");
  });

  test("An automation is activated", async () => {
    const { api, recordAutomation } = await openWorkspace();
    const path = `/automations/${await recordAutomation({ status: "paused" })}`;
    expect((await api.patch(path, { status: "active" })).status).toEqual(SUCCESS);
    expect((await api.get<Automation>(path)).body.status).toBe("active");
  });

  test("An automation absent from the workspace gives 404 `automation_not_found`", async () => {
    const foreign = await (await openWorkspace()).recordAutomation();
    for (const id of [foreign, "aut_0"])
      expect(await three.patch(`/automations/${id}`, { status: "paused" })).toMatchObject({
        status: 404,
        body: anError("automation_not_found"),
      });
  });
});
