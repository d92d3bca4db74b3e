import type { Runtime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { openWorkspace } from "./isolation.ts";

const SUBSCRIPTIONS = 20;
const AGENT = { reference: "agent", name: "Agence Lumière" };

/**
 * Bytes by which the database grows with each pause or activation of an automation, once its event
 * has been delivered to the maximum number of subscriptions.
 */
export async function measureFilling(runtime: Runtime, changes: number): Promise<number> {
  const receiver = await startReceiver();
  const { workspaceId, apiKey } = await openWorkspace(runtime, []);
  const call = async (method: string, path: string, body: object) => {
    const answer = await fetch(new URL(path, runtime.url), {
      method,
      headers: { Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    await answer.arrayBuffer();
    if (!answer.ok) throw new Error(`${method} ${path} was answered ${answer.status}`);
  };
  for (let i = 0; i < SUBSCRIPTIONS; i++) {
    const url = `${receiver.url}/${i}`;
    await call("POST", "/v1/webhooks", { url, events: ["automation.status_changed"] });
  }
  const { ids } = await runtime.env.PLATFORM.recordAutomations({
    workspaceId,
    automations: [
      {
        reference: "automation",
        type: "social_comments",
        provider: "instagram",
        agent: AGENT,
        status: "active",
      },
    ],
  });
  const before = await sizeOf(runtime);
  for (let i = 0; i < changes; i++)
    await call("PATCH", `/v1/automations/${ids[0]}`, { status: i % 2 === 0 ? "paused" : "active" });
  await until(() => receiver.posts.length >= changes * SUBSCRIPTIONS, 120_000);
  await until(async () => (await runtime.env.PLATFORM.backlog({ workspaceId })).pending === 0);
  const grown = (await sizeOf(runtime)) - before;
  await receiver.close();
  return grown / changes;
}

async function sizeOf(runtime: Runtime): Promise<number> {
  return (await runtime.env.DB.prepare("SELECT 1").all()).meta.size_after;
}
