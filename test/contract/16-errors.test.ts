import { beforeAll, describe, expect, test } from "vitest";
import {
  type Answer,
  anError,
  type ErrorBody,
  EVENTS,
  failingKey,
  isElsewhere,
  openApi,
  openWorkspace,
  platform,
  send,
  sendUnauthenticated,
  TOO_LARGE,
  type Workspace,
} from "./support.ts";

const URL = "https://hooks.example.com/";

let usual: Workspace;
beforeAll(async () => {
  usual = await openWorkspace();
});

/** The API as seen by a key whose requests are used up. */
async function openUsedUp() {
  const { api } = await openWorkspace({ requestsPerWindow: 1 });
  await api.get("/leads");
  return api;
}

/** How a client causes each code. */
const CAUSES: [
  code: string,
  status: number,
  condition: string,
  () => Promise<Answer<ErrorBody>>,
][] = [
  ["invalid_request", 400, "`limit` out of range", async () => usual.api.get("/leads?limit=101")],
  ["invalid_request", 400, "`limit` not an integer", async () => usual.api.get("/leads?limit=x")],
  ["invalid_request", 400, "unreadable `cursor`", async () => usual.api.get("/leads?cursor=x")],
  [
    "invalid_request",
    400,
    "invalid webhook payload",
    async () => usual.api.post("/webhooks", { url: URL }),
  ],
  ["invalid_request", 413, "body too large", async () => usual.api.post("/webhooks", TOO_LARGE)],
  [
    "invalid_request",
    415,
    "unsupported content type",
    async () => {
      const headers = { Authorization: `Bearer ${usual.apiKey}`, "Content-Type": "text/plain" };
      return send("POST", "/v1/webhooks", { headers, body: "{}" });
    },
  ],
  ["invalid_api_key", 401, "key missing", () => sendUnauthenticated(null)],
  [
    "workspace_access_denied",
    403,
    "workspace without access",
    async () => {
      const { workspaceId, api } = await openWorkspace();
      await platform("setWorkspaceAccess", { workspaceId, granted: false });
      return api.get("/leads");
    },
  ],
  [
    "automation_not_found",
    404,
    "automation absent",
    async () => usual.api.get("/automations/aut_0"),
  ],
  [
    "webhook_not_found",
    404,
    "subscription absent",
    async () => usual.api.delete("/webhooks/whk_0"),
  ],
  ["route_not_found", 404, "unknown path", async () => usual.api.get("/unknown")],
  [
    "automation_not_controllable",
    422,
    "automation is `draft`",
    async () => {
      const id = await usual.recordAutomation({ status: "draft" });
      return usual.api.patch(`/automations/${id}`, { status: "active" });
    },
  ],
  [
    "automation_not_controllable",
    422,
    "automation is `error`",
    async () => {
      const id = await usual.recordAutomation({ status: "error" });
      return usual.api.patch(`/automations/${id}`, { status: "active" });
    },
  ],
  ["rate_limited", 429, "quota exceeded", async () => (await openUsedUp()).get("/leads")],
  [
    "internal_error",
    500,
    "the server fails",
    async () => openApi(failingKey ?? "").get("/automations"),
  ],
];

// No request of a client may make the server fail, so only a damaged workspace shows this error.
const KNOWN = CAUSES.filter(([code]) => failingKey || code !== "internal_error");

describe.each(KNOWN)("Errors: `%s` with status %i: %s", (code, status, _, cause) => {
  let answer: Answer<ErrorBody>;
  beforeAll(async () => {
    answer = await cause();
  });

  test(`The answer is ${status} \`${code}\``, () => {
    expect([answer.status, answer.body.error.code]).toEqual([status, code]);
  });

  test("The body has `error.code`, `error.message` and `error.details`, and no others", () => {
    expect(answer.body).toEqual(anError(code));
  });

  test("`error.message` is in French", () => {
    const { message } = answer.body.error;
    expect(message).toMatch(/(^|[ ’])(la|le|les|une?|cette|cet|est|n’est|pas|de|trop)[ ’]/i);
    expect(message).not.toMatch(/\b(the|is|not|of|must|error|database|SQL)\b/i);
  });
});

describe("Errors: `error.details`", () => {
  test("`details` is `{}` where there is no context", async () => {
    expect((await sendUnauthenticated(null)).body.error.details).toEqual({});
  });

  test.each([
    ["limit", "/leads?limit=0"],
    ["cursor", "/leads?cursor=x"],
  ])("`details` names the faulty parameter `%s`", async (parameter, path) => {
    expect((await usual.api.get(path)).body.error.details.parameter).toBe(parameter);
  });

  test.each([
    ["url", { url: "http://hooks.example.com/", events: EVENTS }],
    ["events", { url: URL, events: "lead.created" }],
  ])("`details` names the faulty property `%s`", async (parameter, body) => {
    expect((await usual.api.post("/webhooks", body)).body.error.details.parameter).toBe(parameter);
  });

  test("The cause of a 413 is in `details.reason`", async () => {
    const answer = await usual.api.post("/webhooks", TOO_LARGE);
    expect(answer.status).toBe(413);
    expect(answer.body.error.details.reason).toMatch(/./);
  });

  test("The cause of a 415 is in `details.reason`", async () => {
    const headers = { Authorization: `Bearer ${usual.apiKey}`, "Content-Type": "application/xml" };
    const answer = await send("POST", "/v1/webhooks", { headers, body: "{}" });
    expect(answer.status).toBe(415);
    expect(answer.body.error.details.reason).toMatch(/./);
  });

  describe.skipIf(isElsewhere)("where the contract is silent on which details an error has", () => {
    test("`details.max` of a `limit` above its maximum is 100", async () => {
      expect((await usual.api.get("/leads?limit=101")).body.error.details.max).toBe(100);
    });
  });
});
