/**
 * Causes one real event in the sample workspace of the running local server, as the platform would:
 *
 *     npm run trigger -- lead.created
 */
import { WebhookEvent } from "../src/contract/enumerations.ts";
import { HARD_DELIVERIES } from "../src/events/samples.ts";
import type { PageBody } from "../src/http/paging.ts";
import type { Automation } from "../src/records/automations.ts";
import type { Webhook } from "../src/subscriptions/subscriptions.ts";
import { fail, parseArguments } from "./shared/command.ts";
import { openApi } from "./shared/local-api.ts";
import { findSampleWorkspace, type SampleWorkspace } from "./shared/local-server.ts";
import { openPlatform, type PlatformClient } from "./shared/platform-client.ts";
import { freshLead } from "./shared/sample.ts";
import { print } from "./shared/terminal.ts";

const KINDS = WebhookEvent.options.join(", ");

interface Trigger {
  /** The help's words about it. */
  about: string;
  cause(platform: PlatformClient, workspace: SampleWorkspace): Promise<string>;
}

/**
 * Causes an event of each type, and returns the id of the record that it is about. Leads and runs have the values of
 * test events, which a webhook handler rejects if it serializes the body again before it verifies the signature.
 *
 * `test/long/end-to-end/local-server.test.ts` therefore expects U+2028 in every body, except in that of
 * `automation.status_changed`, whose automation belongs to the sample workspace. The names of automations and agents may
 * have no control characters, so they cannot have the tab of test events.
 */
const TRIGGERS: Record<WebhookEvent, Trigger> = {
  "lead.created": {
    about: "records a new lead",
    async cause(platform, { workspaceId }) {
      const { custom_fields: customFields } = HARD_DELIVERIES["lead.created"].data;
      const leads = [{ ...freshLead(Date.now()), customFields }];
      const { ids } = await platform.call("recordLeads", { workspaceId, leads });
      return String(ids[0]);
    },
  },
  "run.completed": {
    about: "records a finished run",
    async cause(platform, workspace) {
      const { id: automationId } = await findAutomation(workspace);
      const { ids } = await platform.call("recordRuns", {
        workspaceId: workspace.workspaceId,
        runs: [
          {
            reference: `trigger-${Date.now()}`,
            automationId,
            status: "success",
            triggerType: "message",
            actions: HARD_DELIVERIES["run.completed"].data.actions,
          },
        ],
      });
      return String(ids[0]);
    },
  },
  "automation.status_changed": {
    about: "pauses an automation; the next time, activates it",
    async cause(_, workspace) {
      const { id, status } = await findAutomation(workspace);
      const change = { status: status === "active" ? "paused" : "active" };
      await openApi(workspace.base, workspace.apiKey)("PATCH", `/v1/automations/${id}`, change);
      return id;
    },
  },
};

const NAME_WIDTH = Math.max(...WebhookEvent.options.map(({ length }) => length)) + 2;

const USAGE = `npm run trigger -- EVENT

Causes one event in the sample workspace of the running local server, as the platform would. Prints
its id and that of its record.

${WebhookEvent.options.map((type) => `  ${type.padEnd(NAME_WIDTH)}${TRIGGERS[type].about}\n`).join("")}`;

process.on("uncaughtException", fail);
const { positionals } = parseArguments(USAGE, {}, { allowPositionals: true });
const [kind, ...rest] = positionals;
if (kind === undefined || rest.length > 0) throw new Error(`one event is expected: ${KINDS}`);
const event = WebhookEvent.options.find((name) => name === kind);
if (!event) throw new Error(`${kind}: no such event; there are ${KINDS}`);
const workspace = await findSampleWorkspace();
await using platform = await openPlatform();
const startedAt = Date.now();
const recordId = await TRIGGERS[event].cause(platform, workspace);
const eventId = await findEvent(platform, workspace, event, recordId, startedAt);
print(`${event}  ${eventId ?? "(no event: no webhook lists it)"}  ${recordId}`);

/** Finds the event about a record, among those stored since; null if no subscription gets it. */
async function findEvent(
  platform: PlatformClient,
  { base, apiKey }: SampleWorkspace,
  type: WebhookEvent,
  recordId: string,
  since: number,
): Promise<string | null> {
  const { data } = await openApi(base, apiKey)<PageBody<Webhook>>("GET", "/v1/webhooks?limit=100");
  for (const { id: webhookId } of data.filter(({ events }) => events.includes(type))) {
    const { items } = await platform.call("listDeliveries", { webhookId, type });
    for (const { eventId } of items.filter(({ createdAt }) => Date.parse(createdAt) >= since)) {
      const { body } = await platform.call("readDelivery", { webhookId, eventId });
      if (JSON.parse(body).data.id === recordId) return eventId;
    }
  }
  return null;
}

/** Finds an automation that can be paused or activated, the same one each time. */
async function findAutomation({ base, apiKey }: SampleWorkspace): Promise<Automation> {
  const { data } = await openApi(base, apiKey)<PageBody<Automation>>(
    "GET",
    "/v1/automations?limit=100",
  );
  const found = data.find(({ status }) => status === "active" || status === "paused");
  if (!found) throw new Error("The sample workspace has no automation that can be paused.");
  return found;
}
