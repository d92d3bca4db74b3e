import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { type Post, type Receiver, startReceiver } from "../../node/support/receiver.ts";
import { until } from "../../support/until.ts";

let runtime: Runtime;
let receiver: Receiver;
const logs: string[] = [];

beforeAll(async () => {
  runtime = await startRuntime({ onLog: (line) => logs.push(line) });
  receiver = await startReceiver();
});

afterAll(async () => {
  await runtime.stop();
  await receiver.close();
});

const EVENTS = ["lead.created", "run.completed", "automation.status_changed"];

async function makeWorkspace() {
  const { workspaceId } = await runtime.env.PLATFORM.createWorkspace({ name: "Agence" });
  const { apiKey } = await runtime.env.PLATFORM.createApiKey({ workspaceId });
  const call = async (method: string, path: string, body?: unknown) => {
    const headers = { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" };
    const answer = await fetch(new URL(path, runtime.url), {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    return { status: answer.status, body: text === "" ? null : JSON.parse(text) };
  };
  return { workspaceId, call };
}

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

describe("a subscriber over HTTP", () => {
  test("gets each event once, signed so that both families of verifiers accept it", async () => {
    const { workspaceId, call } = await makeWorkspace();
    const created = await call("POST", "/v1/webhooks", {
      url: `${receiver.url}/all`,
      events: EVENTS,
    });
    expect(created.status).toBe(201);
    const { automationId, leadIds } = await recordEverything(workspaceId);
    const paused = await call("PATCH", `/v1/automations/${automationId}`, { status: "paused" });
    expect(paused.status).toBe(200);

    const posts = () => receiver.posts.filter(({ path }) => path === "/all");
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
    expect(ofType("automation.status_changed").map(({ data }) => data)).toEqual([paused.body]);

    const stripe = new Stripe("sk_test_unused");
    const standard = new Webhook(created.body.secret);
    for (const { body, headers } of posts()) {
      const signature = headers["x-service-signature"] as string;
      const verified = await stripe.webhooks.constructEventAsync(
        body,
        signature,
        created.body.secret,
      );
      expect(verified.id).toMatch(/^evt_/);
      expect(standard.verify(body, headers as Record<string, string>)).toEqual(verified);
      const tampered = Buffer.concat([body, Buffer.from(" ")]);
      await expect(
        stripe.webhooks.constructEventAsync(tampered, signature, created.body.secret),
      ).rejects.toThrow(/signature/i);
      expect(() => standard.verify(tampered, headers as Record<string, string>)).toThrow(
        /signature/i,
      );
    }
    const list = await call("GET", "/v1/leads?limit=100");
    const told = ofType("lead.created").map(({ data }) => data);
    expect(told.toSorted((a, b) => (a.id < b.id ? 1 : -1))).toEqual(
      list.body.data.toSorted((a: { id: string }, b: { id: string }) => (a.id < b.id ? 1 : -1)),
    );
  });

  test("leaves a ledger that adds up", async () => {
    const ledger = await runtime.env.PLATFORM.ledger({});
    expect(ledger).toMatchObject({ addsUp: true, created: 25, delivered: 25, pending: 0 });
  });
});
