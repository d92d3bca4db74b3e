import { setTimeout as sleep } from "node:timers/promises";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import { type Receiver, startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

let runtime: Runtime;
let receiver: Receiver;
/** The only secret that the receiver knows. */
let secret: string;
const refusals: string[] = [];

beforeAll(async () => {
  runtime = await startRuntime();
  receiver = await startReceiver(async ({ headers, body }) => {
    // Verified on arrival, like a receiver that answers late.
    const webhook = new Webhook(secret.replace("whsec_", ""));
    try {
      webhook.verify(body, headers as Record<string, string>);
    } catch (error) {
      refusals.push(String(error));
      return 401;
    }
    await sleep(20);
    return 204;
  });
});

afterAll(async () => {
  await runtime.stop();
  await receiver.close();
});

test("a receiver that switches to a new secret as soon as it has it refuses nothing, under a stream of events", async () => {
  const { PLATFORM } = runtime.env;
  const { workspaceId, subscribe } = await openWorkspace(runtime);
  const made = await subscribe(receiver.url);
  secret = made.secret;
  let recorded = 0;
  let isOver = false;
  const stream = (async () => {
    while (!isOver) {
      const leads = Array.from({ length: 3 }, () => ({
        reference: `lead-${recorded++}`,
        source: "crm" as const,
        agent: { reference: "agent", name: "Agence" },
      }));
      await PLATFORM.recordLeads({ workspaceId, leads });
      await sleep(20);
    }
  })();
  for (const overlapSeconds of [60, 2, undefined]) {
    const seen = receiver.posts.length;
    await until(() => receiver.posts.length > seen + 20);
    const rotated = await PLATFORM.rotateWebhookSecret({
      webhookId: made.id,
      ...(overlapSeconds === undefined ? {} : { overlapSeconds }),
    });
    secret = String(rotated.secret);
  }
  // The second overlap ends in the meantime.
  await sleep(4_500);
  isOver = true;
  await stream;
  expect(recorded).toBeGreaterThan(60);
  expect(refusals).toEqual([]);
  await until(async () => (await PLATFORM.ledger({ workspaceId })).delivered === recorded);
  expect(receiver.posts).toHaveLength(recorded);
});
