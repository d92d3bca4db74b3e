import type { WebhookEvent } from "../contract/enumerations.ts";
import { newEventId } from "../contract/ids.ts";
import { isoTime } from "../contract/time.ts";
import { log } from "../log.ts";
import { showPerson } from "../records/person.ts";
import type { WebhookDelivery } from "./bodies.ts";
import { type Posted, post } from "./post.ts";
import { createGuard } from "./resolve.ts";
import { openSigner } from "./secrets.ts";
import type { KnownSubscription } from "./subscriptions.ts";
import type { TestResult } from "./views.ts";

/**
 * Posts a sample event once, now, signed like any other, and returns the receiver's answer. A
 * header, `X-Service-Test: true`, and its data mark it as a test. Nothing is recorded: it affects
 * neither the ledger nor the subscription's health.
 *
 * @throws Error if one of the subscription's secrets cannot be decrypted.
 */
export async function sendTestEvent(
  env: Env,
  subscription: KnownSubscription,
  type: WebhookEvent,
  now: number,
): Promise<TestResult> {
  const { id, url } = subscription;
  const eventId = newEventId(now);
  const sample: WebhookDelivery = { id: eventId, created_at: isoTime(now), ...sampleOf(type, now) };
  const body = JSON.stringify(sample);
  const { outcome, response }: Posted = (await createGuard(env)(url))
    ? { outcome: { kind: "refused" }, response: null }
    : await post(url, body, await headersOf(env, subscription, eventId, body, now), now);
  await response?.body?.cancel();
  const status = outcome.kind === "answered" ? outcome.status : null;
  const durationMs = Date.now() - now;
  const { host } = new URL(url);
  log("test_event", { webhookId: id, host, outcome: outcome.kind, status, durationMs });
  return { eventId, outcome: outcome.kind, status, durationMs };
}

async function headersOf(
  env: Env,
  subscription: KnownSubscription,
  eventId: string,
  body: string,
  now: number,
): Promise<Record<string, string>> {
  const sign = await openSigner(env, subscription.id, subscription);
  return { ...(await sign(eventId, body, now)), "X-Service-Test": "true" };
}

type Sample = WebhookDelivery extends infer D
  ? D extends WebhookDelivery
    ? Pick<D, "type" | "data">
    : never
  : never;

function sampleOf(type: WebhookEvent, now: number): Sample {
  const at = isoTime(now);
  switch (type) {
    case "lead.created":
      return {
        type,
        data: {
          id: "lea_test",
          source: "widget",
          agent_id: "agt_test",
          ...showPerson({
            name: "Test",
            email: "test@example.com",
            customFields: { test: true },
          }),
          created_at: at,
        },
      };
    case "run.completed":
      return {
        type,
        data: {
          id: "run_test",
          automation_id: "aut_test",
          status: "success",
          trigger_type: "comment",
          occurred_at: at,
          actions: [{ type: "test", status: "test" }],
          lead_id: null,
        },
      };
    case "automation.status_changed":
      return {
        type,
        data: {
          id: "aut_test",
          name: "Test",
          type: "social_comments",
          provider: "test",
          agent_id: "agt_test",
          agent_name: "Test",
          status: "active",
          updated_at: at,
        },
      };
  }
}
