import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { urlRules } from "../../../scripts/start/url-rules.ts";
import type { PageBody } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { startLocalServer } from "../../node/support/local-server.ts";
import { opened } from "../../node/support/opened.ts";
import { serve } from "../../node/support/server.ts";

/** Knows one name, with a public address. */
const resolver = await opened(
  serve((request, response) => {
    const isKnown = request.url?.includes("name=example.com&");
    const Answer = isKnown ? [{ type: 1, data: "93.184.216.34", TTL: 60 }] : [];
    response.end(JSON.stringify({ Status: isKnown ? 0 : 3, Answer }));
  }),
);
const ANOTHER = '\n[[d1_databases]]\nbinding = "DB_2"\ndatabase_name = "public-api-2"\n';
const strict = await opened(
  startLocalServer(
    (folder) => appendFileSync(join(folder, "wrangler.toml"), ANOTHER),
    ["--strict"],
    { DNS_OVER_HTTPS_URL: `${resolver.url}/` },
  ),
);

test.each([
  ["http://example.com/", "https_required"],
  ["https://10.0.0.1/", "private_address"],
  ["https://localhost/", "private_address"],
  ["https://nope.invalid/", "private_address"],
  ["https://unknown.example.org/", "unresolvable_host"],
  ["https://example.com/", undefined],
])("npm start -- --strict answers to %s as production does: %s", async (url, reason) => {
  const headers = {
    Authorization: `Bearer ${strict.state.apiKey}`,
    "Content-Type": "application/json",
  };
  const body = JSON.stringify({ url, events: ["lead.created"] });
  const answer = await fetch(`${strict.base}/v1/webhooks`, { method: "POST", headers, body });
  const { error } = (await answer.json()) as { error?: { details: { reason: string } } };
  expect([answer.status, error?.details.reason]).toEqual([reason ? 400 : 201, reason]);
});

test("npm start -- --strict says what it validates, and that nothing can arrive here", async () => {
  expect(strict.output()).toMatch(/Hosts are looked\nup with http:\/\/127\.0\.0\.1:\d+\//);
  const listener = strict.start("listen");
  expect(await listener.ended).toBe(1);
  expect(listener.output()).toBe(
    "The local server rejects URLs on this machine: start it without --strict.\n",
  );
});

/** Calls the Platform API as an operator does. */
async function platform(method: string, input: object = {}) {
  const command = strict.start("platform", "--json", method, JSON.stringify(input));
  const code = await command.ended;
  expect(code, command.output()).toBe(0);
  return JSON.parse(command.output());
}

test("npm start migrates and serves each database of wrangler.toml", async () => {
  expect((await platform("databases")).items).toMatchObject([
    { database: "DB", sizeBytes: expect.any(Number) },
    { database: "DB_2", sizeBytes: expect.any(Number) },
  ]);
  const created = { name: "Horizon", database: "DB_2" };
  const { workspaceId } = await platform("createWorkspace", created);
  const { apiKey } = await platform("createApiKey", { workspaceId });
  const agent = { reference: "agent-1", name: "Lumière" };
  const leads = [{ reference: "1", source: "crm", agent, name: "Zoë" }];
  const { ids } = await platform("recordLeads", { workspaceId, leads });
  const page = await openApi(strict.base, apiKey)<PageBody<Lead>>("GET", "/v1/leads");
  expect(page.data).toMatchObject([{ id: ids[0], name: "Zoë" }]);
});

test.each([
  [
    "http://127.0.0.1:9/",
    "http://127.0.0.1:9/ does not respond. In production, too, they are then",
  ],
  ["", "DNS_OVER_HTTPS_URL is empty."],
])(
  "npm start -- --strict with the resolver %j says that hosts are not looked up",
  async (url, sentence) => {
    vi.stubEnv("DNS_OVER_HTTPS_URL", url);
    try {
      expect((await urlRules(true)).told).toContain(sentence);
    } finally {
      vi.unstubAllEnvs();
    }
  },
);
