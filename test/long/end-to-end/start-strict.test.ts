import { once } from "node:events";
import { appendFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { urlRules } from "../../../scripts/start/url-rules.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { type LocalServer, startLocalServer } from "../../node/support/local-server.ts";

describe("npm start -- --strict, with one more database", () => {
  let strict: LocalServer;
  let resolver: Server;
  beforeAll(async () => {
    // Knows one name, with a public address.
    resolver = createServer((request, response) => {
      const isKnown = request.url?.includes("name=example.com&");
      const Answer = isKnown ? [{ type: 1, data: "93.184.216.34", TTL: 60 }] : [];
      response.end(JSON.stringify({ Status: isKnown ? 0 : 3, Answer }));
    }).listen(0, "127.0.0.1");
    await once(resolver, "listening");
    const { port } = resolver.address() as AddressInfo;
    const env = { DNS_OVER_HTTPS_URL: `http://127.0.0.1:${port}/` };
    const another = '\n[[d1_databases]]\nbinding = "DB_2"\ndatabase_name = "public-api-2"\n';
    const addDatabase = (folder: string) => appendFileSync(join(folder, "wrangler.toml"), another);
    strict = await startLocalServer(addDatabase, ["--strict"], env);
  }, 90_000);
  afterAll(async () => {
    await strict?.stop();
    resolver.close();
  });

  test.each([
    ["http://example.com/", "https_required"],
    ["https://10.0.0.1/", "private_address"],
    ["https://localhost/", "private_address"],
    ["https://nope.invalid/", "private_address"],
    ["https://unknown.example.org/", "unresolvable_host"],
    ["https://example.com/", undefined],
  ])("answers to %s as production does: %s", async (url, reason) => {
    const headers = {
      Authorization: `Bearer ${strict.state.apiKey}`,
      "Content-Type": "application/json",
    };
    const body = JSON.stringify({ url, events: ["lead.created"] });
    const answer = await fetch(`${strict.base}/v1/webhooks`, { method: "POST", headers, body });
    const { error } = (await answer.json()) as { error?: { details: { reason: string } } };
    expect([answer.status, error?.details.reason]).toEqual([reason ? 400 : 201, reason]);
  });

  test("says what it validates, and that nothing can arrive here", async () => {
    expect(strict.output()).toMatch(/Hosts are looked\nup with http:\/\/127\.0\.0\.1:\d+\//);
    const listener = strict.start("listen");
    expect(await listener.ended).toBe(1);
    expect(listener.output()).toBe(
      "The local server refuses URLs on this machine: start it without --strict.\n",
    );
  });

  /** Calls the Platform API as an operator does. */
  async function platform(method: string, input: object = {}) {
    const command = strict.start("platform", "--json", method, JSON.stringify(input));
    const code = await command.ended;
    expect(code, command.output()).toBe(0);
    return JSON.parse(command.output());
  }

  test("migrates each database of wrangler.toml, and serves a workspace that lives in it", async () => {
    expect((await platform("databases")).items).toMatchObject([
      { database: "DB", isAway: false },
      { database: "DB_2", isAway: false, sizeBytes: expect.any(Number) },
    ]);
    const created = { name: "Horizon", database: "DB_2" };
    const { workspaceId } = await platform("createWorkspace", created);
    const { apiKey } = await platform("createApiKey", { workspaceId });
    const agent = { reference: "agent-1", name: "Lumière" };
    const leads = [{ reference: "1", source: "crm", agent, name: "Zoë" }];
    const { ids } = await platform("recordLeads", { workspaceId, leads });
    const page = await openApi(strict.base, apiKey)<Page<Lead>>("GET", "/v1/leads");
    expect(page.data).toMatchObject([{ id: ids[0], name: "Zoë" }]);
  });
});

test.each([
  ["http://127.0.0.1:9/", "http://127.0.0.1:9/ does not answer. In production, too, they are then"],
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
