import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import type { Page } from "../../../src/http/paging.ts";
import type { Lead } from "../../../src/records/leads.ts";
import { type Post, type Receiver, startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

let runtime: Runtime;
let receiver: Receiver;

beforeAll(async () => {
  runtime = await startRuntime({ databases: 3 });
  receiver = await startReceiver();
});

afterAll(async () => {
  await runtime.stop();
  await receiver.close();
});

const EVENTS = ["lead.created", "run.completed", "automation.status_changed"];

async function recordEverything(workspaceId: string) {
  const { PLATFORM } = runtime.env;
  const agent = { reference: "agent-1", name: "Lumière" };
  const automation = { reference: "a-1", type: "lead_ads" as const, provider: "facebook", agent };
  const { ids: automations } = JSON.parse(
    JSON.stringify(
      await PLATFORM.recordAutomations({
        workspaceId,
        automations: [{ ...automation, status: "active" }],
      }),
    ),
  );
  const leads = Array.from({ length: 12 }, (_, i) => ({
    reference: `lead-${i}`,
    source: "lead_ads" as const,
    agent,
    name: `Zoë “${i}” 🌻`,
    customFields: { budget: "10 000 €", nested: { i } },
  }));
  const { ids: leadIds } = JSON.parse(
    JSON.stringify(await PLATFORM.recordLeads({ workspaceId, leads })),
  );
  const runs = leadIds.map((leadId: string, i: number) => ({
    reference: `run-${i}`,
    automationId: automations[0],
    status: "success" as const,
    triggerType: "lead_ads" as const,
    actions: [{ type: "send_message", status: "success" }],
    leadId,
  }));
  await PLATFORM.recordRuns({ workspaceId, runs });
  return { automationId: automations[0] as string, leadIds: leadIds as string[] };
}

function eventsOf(posts: Post[]) {
  return posts.map(({ body }) => JSON.parse(body.toString()));
}

const DATABASES = ["DB", "DB_2", "DB_3"] as const;

describe("a subscriber over HTTP", () => {
  test.each(DATABASES)(
    "gets each event of a workspace in %s once, signed so that both families of verifiers accept it",
    async (database) => {
      const { workspaceId, api, subscribe } = await openWorkspace(runtime, { database });
      const path = `/${database}`;
      const { secret } = await subscribe(`${receiver.url}${path}`, EVENTS);
      const { automationId, leadIds } = await recordEverything(workspaceId);
      const paused = await api("PATCH", `/v1/automations/${automationId}`, { status: "paused" });

      const posts = () => receiver.posts.filter((post) => post.path === path);
      await until(() => posts().length >= 25);
      await until(async () => (await runtime.env.PLATFORM.ledger({ workspaceId })).pending === 0);

      const events = eventsOf(posts());
      expect(new Set(events.map(({ id }) => id)).size).toBe(25);
      expect(events).toHaveLength(25);
      const ofType = (type: string) => events.filter((event) => event.type === type);
      expect(
        ofType("lead.created")
          .map(({ data }) => data.id)
          .sort(),
      ).toEqual(leadIds.toSorted());
      expect(ofType("run.completed")).toHaveLength(12);
      expect(ofType("automation.status_changed").map(({ data }) => data)).toEqual([paused]);

      const stripe = new Stripe("sk_test_unused");
      const standard = new Webhook(secret);
      for (const { body, headers } of posts()) {
        const signature = headers["x-service-signature"] as string;
        const verified = await stripe.webhooks.constructEventAsync(body, signature, secret);
        expect(verified.id).toMatch(/^evt_/);
        expect(standard.verify(body, headers as Record<string, string>)).toEqual(verified);
        const tampered = Buffer.concat([body, Buffer.from(" ")]);
        await expect(
          stripe.webhooks.constructEventAsync(tampered, signature, secret),
        ).rejects.toThrow(/signature/i);
        expect(() => standard.verify(tampered, headers as Record<string, string>)).toThrow(
          /signature/i,
        );
      }
      const byId = (a: Lead, b: Lead) => (a.id < b.id ? 1 : -1);
      const { data } = await api<Page<Lead>>("GET", "/v1/leads?limit=100");
      const told: Lead[] = ofType("lead.created").map(({ data }) => data);
      expect(told.toSorted(byId)).toEqual(data.toSorted(byId));
      const db = (runtime.env as unknown as Record<string, D1Database>)[database] as D1Database;
      const { results } = await db.prepare("SELECT id FROM leads").all<{ id: string }>();
      expect(results.map(({ id }) => id).toSorted()).toEqual(leadIds.toSorted());
    },
  );

  test("leaves a ledger that adds up", async () => {
    const ledger = await runtime.env.PLATFORM.ledger({});
    expect(ledger).toMatchObject({ addsUp: true, created: 75, delivered: 75, pending: 0 });
  });
});
