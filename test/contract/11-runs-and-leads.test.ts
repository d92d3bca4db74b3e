import { beforeAll, describe, expect, test } from "vitest";
import { A_LEAD, A_RUN, type Api, anError, openWorkspace, type Page } from "./support.ts";

const idsOf = ({ data }: Page) => data.map(({ id }) => id).toSorted();

describe("`GET /automations/{id}/runs`", () => {
  test("The response's `data` are the runs of one automation", async () => {
    const { api, recordAutomation, recordRun } = await openWorkspace();
    const [own, other] = [await recordAutomation(), await recordAutomation()];
    const ids = [await recordRun(own), await recordRun(own)];
    await recordRun(other);
    const { status, body } = await api.get<Page>(`/automations/${own}/runs`);
    expect(status).toBe(200);
    expect(body.data).toEqual([A_RUN, A_RUN]);
    expect(idsOf(body)).toEqual(ids.toSorted());
  });

  test("An automation absent from the workspace gives 404 `automation_not_found`", async () => {
    const { api } = await openWorkspace();
    const other = await openWorkspace();
    const foreign = await other.recordAutomation();
    await other.recordRun(foreign);
    for (const id of [foreign, "aut_0"])
      expect(await api.get(`/automations/${id}/runs`)).toMatchObject({
        status: 404,
        body: anError("automation_not_found"),
      });
  });
});

describe("`GET /runs`", () => {
  test("The response's `data` are the runs of the workspace", async () => {
    const { api, recordAutomation, recordRun } = await openWorkspace();
    const other = await openWorkspace();
    await other.recordRun(await other.recordAutomation());
    const ids = [];
    for (let i = 0; i < 2; i++) ids.push(await recordRun(await recordAutomation()));
    const { status, body } = await api.get<Page>("/runs");
    expect(status).toBe(200);
    expect(body.data).toEqual([A_RUN, A_RUN]);
    expect(idsOf(body)).toEqual(ids.toSorted());
  });
});

describe("`GET /leads`", () => {
  test("The response's `data` are the leads of the workspace", async () => {
    const { api, recordLead } = await openWorkspace();
    await (await openWorkspace()).recordLead();
    const ids = [await recordLead(), await recordLead({ name: "Zoë" })];
    const { status, body } = await api.get<Page>("/leads");
    expect(status).toBe(200);
    expect(body.data).toEqual([A_LEAD, A_LEAD]);
    expect(idsOf(body)).toEqual(ids.toSorted());
  });
});

describe.each(["/automations/{id}/runs", "/runs", "/leads", "/webhooks"])("`GET %s`", (list) => {
  let [api, path] = [{} as Api, ""];
  beforeAll(async () => {
    const workspace = await openWorkspace();
    ({ api } = workspace);
    path = list.replace("{id}", await workspace.recordAutomation());
  });

  test.each(["0", "101", "x"])(
    "`limit=%s` is refused with 400 `invalid_request`",
    async (limit) => {
      const answer = await api.get(`${path}?limit=${limit}`);
      expect(answer).toMatchObject({ status: 400, body: anError("invalid_request") });
      expect(answer.body.error.details.parameter).toBe("limit");
    },
  );

  test("An unreadable `cursor` is rejected with 400 `invalid_request`", async () => {
    const answer = await api.get(`${path}?cursor=x`);
    expect(answer).toMatchObject({ status: 400, body: anError("invalid_request") });
    expect(answer.body.error.details.parameter).toBe("cursor");
  });
});
