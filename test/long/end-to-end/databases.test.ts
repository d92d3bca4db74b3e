import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { type LocalServer, startLocalServer } from "../../node/support/local-server.ts";
import { type Receiver, startReceiver } from "../../node/support/receiver.ts";
import { until } from "../../support/until.ts";

const NAMES = ["DB", "DB_2", "DB_3"] as const;
const AGENT = { reference: "agent-1", name: "Lumière" };

describe("the built Worker with three databases", () => {
  let runtime: Runtime;
  const receivers: Receiver[] = [];
  beforeAll(async () => {
    runtime = await startRuntime({ databases: 3 });
  });
  afterAll(async () => {
    await runtime.stop();
    await Promise.all(receivers.map((receiver) => receiver.close()));
  });

  async function openIn(database: string) {
    const { PLATFORM } = runtime.env;
    const { workspaceId } = await PLATFORM.createWorkspace({ name: database, database });
    const { apiKey } = await PLATFORM.createApiKey({ workspaceId });
    const api = openApi(runtime.url.origin, apiKey);
    const receiver = await startReceiver();
    receivers.push(receiver);
    const webhook = await api<{ id: string; secret: string }>("POST", "/v1/webhooks", {
      url: receiver.url,
      events: ["lead.created", "automation.status_changed"],
    });
    return { workspaceId, api, receiver, webhook };
  }

  test("records, shows and delivers, signed, for the workspaces of each", async () => {
    const { PLATFORM } = runtime.env;
    const spaces = await Promise.all(NAMES.map(openIn));
    const sent = await Promise.all(
      spaces.map(async ({ workspaceId }, i) => {
        const leads = Array.from({ length: 25 }, (_, n) => ({
          reference: `lead-${n}`,
          source: "crm" as const,
          agent: AGENT,
          name: `Zoë ${i}.${n}`,
        }));
        const { ids } = await PLATFORM.recordLeads({ workspaceId, leads });
        return JSON.parse(JSON.stringify(ids)) as string[];
      }),
    );
    for (const [i, { api, receiver, webhook }] of spaces.entries()) {
      await until(() => receiver.posts.length >= 25);
      const page = await api<Page<Lead>>("GET", "/v1/leads?limit=100");
      expect(page.data.map(({ id }) => id).toSorted()).toEqual(sent[i]?.toSorted());
      const told = receiver.posts.map(({ body, headers }) => {
        const verified = new Webhook(webhook.secret).verify(
          body.toString(),
          headers as Record<string, string>,
        );
        return (verified as { data: Lead }).data.id;
      });
      expect(told.toSorted()).toEqual(sent[i]?.toSorted());
    }
    for (const [i, name] of NAMES.entries()) {
      const db = (runtime.env as unknown as Record<string, D1Database>)[name] as D1Database;
      const { results } = await db.prepare("SELECT id FROM leads").all<{ id: string }>();
      expect(results.map(({ id }) => id).toSorted()).toEqual(sent[i]?.toSorted());
    }
    await expect
      .poll(async () => JSON.parse(JSON.stringify(await PLATFORM.ledger({}))))
      .toMatchObject({ created: 75, delivered: 75, pending: 0, addsUp: true });
  });
});

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
