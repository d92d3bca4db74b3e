import { beforeAll, describe, expect, test } from "vitest";
import {
  type Answer,
  type Api,
  anError,
  EVENTS,
  failingKey,
  failTooOften,
  OPERATIONS,
  openApi,
  openReceiver,
  openWorkspace,
  platform,
  SUCCESS,
  send,
  sendUnauthenticated,
  subscribe,
  TOO_LARGE,
  type Workspace,
} from "./support.ts";

let usual: Workspace;
beforeAll(async () => {
  usual = await openWorkspace();
  await usual.recordRun(await usual.recordAutomation());
  await usual.recordLead();
});

const INTEGER = expect.stringMatching(/^\d+$/);

/** A response of each status that a client can cause. Of successes, the contract names the status of one. */
const RESPONSES: { response: string; status: unknown; ask: () => Promise<Answer> }[] = [
  {
    response: "A successful `GET`",
    status: SUCCESS,
    ask: () => usual.api.get("/leads"),
  },
  {
    response: "A successful `PATCH`",
    status: SUCCESS,
    ask: async () => {
      const { api, recordAutomation } = usual;
      return api.patch(`/automations/${await recordAutomation()}`, { status: "paused" });
    },
  },
  {
    response: "A successful `DELETE`",
    status: SUCCESS,
    ask: async () => {
      const { api } = usual;
      const { id } = await subscribe(api, openReceiver().url);
      return api.delete(`/webhooks/${id}`);
    },
  },
  {
    response: "Status 201",
    status: 201,
    ask: () => usual.api.post("/webhooks", { url: openReceiver().url, events: EVENTS }),
  },
  {
    response: "Status 400",
    status: 400,
    ask: () => usual.api.get("/leads?limit=0"),
  },
  { response: "Status 401", status: 401, ask: () => sendUnauthenticated(null) },
  { response: "Status 403", status: 403, ask: async () => (await openDenied()).get("/leads") },
  {
    response: "Status 404",
    status: 404,
    ask: () => usual.api.get("/unknown"),
  },
  {
    response: "Status 413",
    status: 413,
    ask: () => usual.api.post("/webhooks", TOO_LARGE),
  },
  {
    response: "Status 415",
    status: 415,
    ask: async () => {
      const { apiKey } = usual;
      const headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "text/plain" };
      return send("POST", "/v1/webhooks", { headers, body: "{}" });
    },
  },
  {
    response: "Status 422",
    status: 422,
    ask: async () => {
      const { api, recordAutomation } = usual;
      const id = await recordAutomation({ status: "draft" });
      return api.patch(`/automations/${id}`, { status: "active" });
    },
  },
  { response: "Status 429", status: 429, ask: async () => (await openUsedUp()).get("/leads") },
  ...(failingKey
    ? [
        {
          response: "Status 500",
          status: 500,
          ask: () => openApi(failingKey as string).get("/automations"),
        },
      ]
    : []),
];

/** The API as seen from a workspace without access to the service. */
async function openDenied() {
  const { workspaceId, api } = await openWorkspace();
  await platform("setWorkspaceAccess", { workspaceId, granted: false });
  return api;
}

/** The API as seen by a key that has no requests left. */
async function openUsedUp() {
  const { api } = await openWorkspace({ requestsPerWindow: 1 });
  await api.get("/leads");
  return api;
}

describe("Common rules", () => {
  test("A request with a body carries `Content-Type: application/json`", async () => {
    const { apiKey } = usual;
    const body = JSON.stringify({ url: openReceiver().url, events: EVENTS });
    const statuses = [];
    for (const type of ["application/json", "application/json; charset=utf-8", "text/plain"]) {
      const headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": type };
      statuses.push((await send("POST", "/v1/webhooks", { headers, body })).status);
    }
    expect(statuses).toEqual([201, 201, 415]);
  });

  test("A `PATCH` with another content type gives 415 `invalid_request`", async () => {
    const { apiKey } = usual;
    const headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "text/plain" };
    const body = JSON.stringify({ status: "paused" });
    const answer = await send("PATCH", "/v1/automations/aut_0", { headers, body });
    expect(answer).toMatchObject({ status: 415, body: anError("invalid_request") });
  });

  describe.each(RESPONSES)("$response", ({ status, ask }) => {
    let answer: Answer;
    beforeAll(async () => {
      answer = await ask();
      expect(answer.status).toEqual(status);
    });

    test("The response carries `Cache-Control: no-store`", () => {
      expect(answer.headers.get("Cache-Control")).toBe("no-store");
    });

    test.each(["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"])(
      "The response carries `%s`, an integer",
      (name) => expect(answer.headers.get(name)).toEqual(INTEGER),
    );
  });

  describe("The 429 of an address that fails to authenticate", () => {
    let answer: Answer;
    beforeAll(async () => {
      answer = await failTooOften();
    });

    test("The response carries `Cache-Control: no-store`", () => {
      expect(answer.headers.get("Cache-Control")).toBe("no-store");
    });

    test.each(["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"])(
      "The response carries `%s`, an integer",
      (name) => expect(answer.headers.get(name)).toEqual(INTEGER),
    );
  });

  let denied: Api;
  beforeAll(async () => {
    denied = await openDenied();
  });

  describe.each(OPERATIONS)("`$operation`", ({ method, path, body }) => {
    test("The operation ignores unknown query parameters", async () => {
      const known = await usual.api.call(method, path, body);
      const unknown = await usual.api.call(
        method,
        `${path}?unknown=1&fields[]=a&Limit=0&page=-1`,
        body,
      );
      expect(unknown.status).toBe(known.status);
      expect(known.status).not.toBe(400);
      if (method === "GET") expect(unknown.body).toEqual(known.body);
    });

    test("Without `Authorization: Bearer <API_KEY>`, the response is 401 `invalid_api_key`", async () => {
      const answer = await sendUnauthenticated(null, method, path, body);
      expect(answer).toMatchObject({ status: 401, body: anError("invalid_api_key") });
    });

    test("The operation can respond with 403 `workspace_access_denied`", async () => {
      const answer = await denied.call(method, path, body);
      expect(answer).toMatchObject({ status: 403, body: anError("workspace_access_denied") });
    });

    test("The operation can respond with 429 `rate_limited`", async () => {
      const answer = await (await openUsedUp()).call(method, path, body);
      expect(answer).toMatchObject({ status: 429, body: anError("rate_limited") });
    });
  });
});
