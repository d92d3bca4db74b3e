import { afterAll, beforeAll, expect, test } from "vitest";
import { showPerson } from "../../../src/records/person.ts";
import { exchange, type Lie, type Service, startPrism, startSwitchboard } from "./prism.ts";

const HEADERS = {
  "content-type": "application/json",
  "cache-control": "no-store",
  "x-ratelimit-limit": "600",
  "x-ratelimit-remaining": "599",
  "x-ratelimit-reset": "60",
  "x-request-id": "9c1f2e6a4b7d8035-CDG",
};
const { "x-ratelimit-reset": _, ...HEADERS_BUT_ONE } = HEADERS;
const NO_LEADS = { data: [], has_more: false, next_cursor: null };

function answer(body: unknown, change: Partial<Lie> = {}): Lie {
  return { status: 200, headers: HEADERS, body: JSON.stringify(body), ...change };
}

function error(code: string): unknown {
  return { error: { code, message: "…", details: {} } };
}

/** Responses to `GET /v1/leads` that violate the document, and where Prism should find that. */
const LIES: Record<string, [answer: Lie, location: string]> = {
  "a field is missing": [answer({ data: [], has_more: false }), "response.body"],
  "a field has another type": [answer({ ...NO_LEADS, has_more: "no" }), "response.body.has_more"],
  "a field of an item is missing": [
    answer({ ...NO_LEADS, data: [{ id: "lea_1" }] }),
    "response.body.data.0",
  ],
  "a time is invalid": [
    answer({
      ...NO_LEADS,
      data: [
        {
          ...{ id: "lea_1", source: "crm", agent_id: "agt_1" },
          ...showPerson({}),
          created_at: "yesterday",
        },
      ],
    }),
    "response.body.data.0.created_at",
  ],
  "an error code is not in the list": [
    answer(error("oops"), { status: 400 }),
    "response.body.error.code",
  ],
  "a header is missing": [answer(NO_LEADS, { headers: HEADERS_BUT_ONE }), "response.header"],
  "a header is not a number": [
    answer(NO_LEADS, { headers: { ...HEADERS, "x-ratelimit-reset": "soon" } }),
    "response.header.x-ratelimit-reset",
  ],
  "a 429 does not say when to come back": [
    answer(error("rate_limited"), { status: 429 }),
    "response.header",
  ],
  "an error status is not documented": [answer(error("rate_limited"), { status: 418 }), "response"],
  "a success is not documented": [answer(NO_LEADS, { status: 202 }), "response"],
  "the content is not JSON": [
    answer(NO_LEADS, { headers: { ...HEADERS, "content-type": "text/plain" } }),
    "response",
  ],
};

let switchboard: Service;
let prism: Service;

beforeAll(async () => {
  const lies = Object.values(LIES).map(([lie], i): [string, Lie] => [String(i), lie]);
  switchboard = await startSwitchboard({ ...Object.fromEntries(lies), truth: answer(NO_LEADS) });
  prism = await startPrism(switchboard.url);
});

afterAll(async () => {
  await prism.stop();
  await switchboard.stop();
});

const LEADS = { method: "GET", headers: { Authorization: "Bearer key" } };

test("Prism finds no fault in a response as documented", async () => {
  const { status, ofRequest, ofResponse } = await exchange(prism.url, "truth", "/v1/leads", LEADS);
  expect({ status, ofRequest, ofResponse }).toEqual({ status: 200, ofRequest: [], ofResponse: [] });
});

test.each(
  Object.entries(LIES).map(([name, [{ status }, location]], i) => ({
    ...{ name, status, location },
    upstream: String(i),
  })),
)("Prism notices when $name", async ({ upstream, status, location }) => {
  const seen = await exchange(prism.url, upstream, "/v1/leads", LEADS);
  expect(seen.status).toBe(status);
  expect(seen.ofResponse.map((violation) => violation.location.join("."))).toContain(location);
});
