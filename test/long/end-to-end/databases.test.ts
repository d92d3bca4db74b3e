import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { type LocalServer, startLocalServer } from "../../node/support/local-server.ts";

const AGENT = { reference: "agent-1", name: "Lumière" };

describe("npm start with one more [[d1_databases]] block, and nothing else", () => {
  let server: LocalServer;
  beforeAll(async () => {
    server = await startLocalServer((folder) =>
      appendFileSync(
        join(folder, "wrangler.toml"),
        '\n[[d1_databases]]\nbinding = "DB_2"\ndatabase_name = "public-api-2"\n',
      ),
    );
  }, 90_000);
  afterAll(() => server.stop());

  /** Calls the Platform API as an operator does. */
  async function platform(method: string, input: object = {}) {
    const command = server.start("platform", "--json", method, JSON.stringify(input));
    const code = await command.ended;
    expect(code, command.output()).toBe(0);
    return JSON.parse(command.output());
  }

  test("migrates it, shows it, and serves a workspace that lives in it", async () => {
    const { items } = await platform("databases");
    expect(items).toMatchObject([
      { database: "DB", isAway: false },
      { database: "DB_2", isAway: false, sizeBytes: expect.any(Number) },
    ]);
    const name = "Agence Horizon";
    const { workspaceId } = await platform("createWorkspace", { name, database: "DB_2" });
    const { apiKey } = await platform("createApiKey", { workspaceId });
    const leads = [{ reference: "1", source: "crm", agent: AGENT, name: "Zoë" }];
    const { ids } = await platform("recordLeads", { workspaceId, leads });
    const page = await openApi(server.base, apiKey)<Page<Lead>>("GET", "/v1/leads");
    expect(page.data).toMatchObject([{ id: ids[0], name: "Zoë" }]);
    const listed = (await platform("listWorkspaces")).items;
    expect(
      listed.find((item: { workspaceId: string }) => item.workspaceId === workspaceId),
    ).toMatchObject({ name, database: "DB_2" });
  });
});
