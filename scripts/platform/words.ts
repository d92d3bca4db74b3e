import { PAGE_LIMIT, SUBSCRIPTIONS_MAX } from "../../src/contract/limits.ts";
import type { PlatformInput, PlatformMethod } from "../../src/contract/platform.ts";

/** The fields of an input; nested ones by their paths, such as `leads.agent.name`. */
type FieldOf<T> = T extends readonly (infer Item)[]
  ? FieldOf<Item>
  : T extends object
    ? { [K in keyof T & string]-?: K | `${K}.${FieldOf<NonNullable<T[K]>>}` }[keyof T & string]
    : never;

interface Words<Input> {
  /** What the method does. */
  about: string;
  /** What its fields mean, if their names do not say it. */
  fields: { [F in FieldOf<Input>]?: string };
  /** Example inputs. */
  examples: Input[];
}

const workspaceId = "wks_…";
const webhookId = "whk_…";
const eventId = "evt_…";
const keyId = "key_…";
const ADMINISTRATORS = "who receives e-mails about failing and disabled subscriptions";
const WORKSPACE_NAME = "shown in e-mails to administrators";
const CURSOR = "the previous page's nextCursor; default: the first page";
const ALL = "default: all workspaces";
const NOW = "default: now";
const AGENT = "the agent it belongs to";
const AGENT_NAME = "as the application shows it";
const RECORDED_ONCE = "your own id; each is recorded once";

const agent = { reference: "lyon", name: "Agence Lumière Lyon" };

/** The descriptions of the Platform door's methods, for the command's help. */
export const WORDS: { [M in PlatformMethod]: Words<PlatformInput<M>> } = {
  createWorkspace: {
    about: "Creates a workspace that has access to the service.",
    fields: {
      name: WORKSPACE_NAME,
      adminEmails: ADMINISTRATORS,
      database: "binding of its database; default: the smallest one",
    },
    examples: [{ name: "Agence Lumière", adminEmails: ["admin@example.com"] }],
  },
  databases: {
    about:
      "Lists the bound databases: how full each is, how fast it grows, and when it will be full.",
    fields: {},
    examples: [{}],
  },
  moveWorkspace: {
    about:
      "Moves a workspace to another database while it is in use. Call it until it is done. Moving it to the database it lives in cancels a move that is still copying.",
    fields: { workspaceId, database: "binding of the database to move to" },
    examples: [{ workspaceId, database: "DB_2" }],
  },
  eraseWorkspace: {
    about:
      "Erases a workspace and everything in it, starting with its keys. Call it until it is done; an unknown id is not an error.",
    fields: { workspaceId },
    examples: [{ workspaceId }],
  },
  exportWorkspace: {
    about: "Exports everything stored about a workspace except secrets, page by page.",
    fields: { workspaceId, cursor: CURSOR },
    examples: [{ workspaceId }],
  },
  updateWorkspace: {
    about:
      "Changes a workspace's name, administrators or subscription limit; omitted fields stay as they are.",
    fields: {
      workspaceId,
      name: WORKSPACE_NAME,
      adminEmails: ADMINISTRATORS,
      webhooksMax: `maximum subscriptions; ${SUBSCRIPTIONS_MAX} by default`,
    },
    examples: [
      { workspaceId, adminEmails: ["admin@example.com"] },
      { workspaceId, webhooksMax: 50 },
    ],
  },
  listWorkspaces: {
    about: "Lists workspaces, newest first, 100 per page.",
    fields: { cursor: CURSOR },
    examples: [{}],
  },
  setWorkspaceAccess: {
    about: "Grants or denies a workspace access, with immediate effect.",
    fields: {
      workspaceId,
      granted: "false: its keys get 403 and its pending deliveries are cancelled",
    },
    examples: [{ workspaceId, granted: false }],
  },
  createPortalLink: {
    about:
      "Creates a portal link, to be opened within two minutes. Whoever opens it can manage the workspace's webhooks until the session ends; create a new link each time.",
    fields: {
      workspaceId,
      validMinutes: "how long the session lasts, from now on; default: 60",
    },
    examples: [{ workspaceId }, { workspaceId, validMinutes: 15 }],
  },
  createApiKey: {
    about: "Creates an API key for a workspace. The key is shown only once.",
    fields: {
      workspaceId,
      requestsPerWindow: "the key's own quota; default: QUOTA_REQUESTS",
    },
    examples: [{ workspaceId }, { workspaceId, requestsPerWindow: 6000 }],
  },
  updateApiKey: {
    about: "Changes a live API key's quota, with immediate effect.",
    fields: { keyId, requestsPerWindow: "the key's own quota; null: QUOTA_REQUESTS" },
    examples: [{ keyId, requestsPerWindow: 6000 }],
  },
  rollApiKey: {
    about:
      "Replaces an API key; both keys are valid until the overlap ends. The new key is shown only once.",
    fields: {
      keyId,
      overlapSeconds: "how long the old key stays valid; 0 revokes it immediately",
    },
    examples: [{ keyId, overlapSeconds: 86_400 }],
  },
  revokeApiKey: {
    about: "Revokes an API key for good, with immediate effect.",
    fields: { keyId, apiKey: "instead of keyId: the key itself, for instance one that has leaked" },
    examples: [{ keyId }, { apiKey: "key_live_…" }],
  },
  listApiKeys: {
    about: "Lists a workspace's API keys, including revoked ones, newest first, 100 per page.",
    fields: { workspaceId, cursor: CURSOR },
    examples: [{ workspaceId }],
  },
  recordAutomations: {
    about:
      "Inserts or updates automations and announces activations and pauses. Returns the ids and how many are new.",
    fields: {
      workspaceId,
      "automations.reference": "your own id; reporting it again updates the automation",
      "automations.provider": "the connector, such as facebook",
      "automations.agent": AGENT,
      "automations.agent.reference": "your own id",
      "automations.agent.name": AGENT_NAME,
      "automations.name": "for crm_source only; social automations get a composed name",
      "automations.updatedAt": NOW,
    },
    examples: [
      {
        workspaceId,
        automations: [
          {
            reference: "page-7",
            type: "social_comments",
            provider: "facebook",
            agent,
            status: "active",
          },
        ],
      },
    ],
  },
  removeAutomations: {
    about: "Removes automations and their runs from the API. Returns how many were removed.",
    fields: { workspaceId, ids: "aut_…" },
    examples: [{ workspaceId, ids: ["aut_…"] }],
  },
  recordLeads: {
    about:
      "Inserts leads and announces them; a known reference changes nothing. Returns the ids and how many are new.",
    fields: {
      workspaceId,
      "leads.reference": RECORDED_ONCE,
      "leads.agent": AGENT,
      "leads.agent.reference": "your own id",
      "leads.agent.name": AGENT_NAME,
      "leads.customFields": "any JSON object; clients receive it unchanged",
      "leads.createdAt": NOW,
    },
    examples: [
      {
        workspaceId,
        leads: [{ reference: "crm-1", source: "crm", agent, name: "Camille Durand" }],
      },
    ],
  },
  eraseLeads: {
    about: "Erases leads with their events and deliveries; unknown ids are ignored.",
    fields: { workspaceId, ids: "lea_…" },
    examples: [{ workspaceId, ids: ["lea_…"] }],
  },
  recordRuns: {
    about:
      "Inserts finished runs and announces them; a known reference changes nothing. Returns the ids and how many are new.",
    fields: {
      workspaceId,
      "runs.reference": RECORDED_ONCE,
      "runs.automationId": "aut_…, of this workspace",
      "runs.occurredAt": NOW,
      "runs.leadId": "lea_…, of this workspace",
    },
    examples: [
      {
        workspaceId,
        runs: [
          {
            reference: "run-1",
            automationId: "aut_…",
            status: "success",
            triggerType: "comment",
          },
        ],
      },
    ],
  },
  ledger: {
    about: "Counts deliveries by state.",
    fields: { workspaceId: ALL, database: "binding of one database" },
    examples: [{}, { workspaceId }],
  },
  listWebhooks: {
    about: "Lists a workspace's subscriptions, newest first, with their health.",
    fields: { workspaceId },
    examples: [{ workspaceId }],
  },
  listDeliveries: {
    about: "Lists a subscription's deliveries, newest first.",
    fields: {
      webhookId,
      state: "only deliveries in this state",
      type: "only deliveries of this kind of event",
      limit: `default: ${PAGE_LIMIT.default}`,
      cursor: CURSOR,
    },
    examples: [{ webhookId }, { webhookId, state: "exhausted", limit: 100 }],
  },
  readDelivery: {
    about: "Shows a delivery, its failed attempts, and the exact body.",
    fields: { webhookId, eventId },
    examples: [{ webhookId, eventId }],
  },
  redeliver: {
    about:
      "Delivers events again, even delivered ones, with the same ids and bytes, at 10 per second. Returns how many are about to be sent, and whether there may be more in the range.",
    fields: {
      webhookId,
      eventIds: "the events to redeliver",
      since: "or all events from this time on",
      until: "and before this time; default: no end",
      states: "only deliveries in these states; missed: never owed. Default: all",
    },
    examples: [
      { webhookId, eventIds: [eventId] },
      { webhookId, since: "2026-11-01T00:00:00Z", states: ["exhausted", "cancelled"] },
    ],
  },
  backlog: {
    about: "Counts pending deliveries; cheaper than the ledger.",
    fields: { workspaceId: ALL, database: "binding of one database" },
    examples: [{}, { workspaceId }],
  },
  enableWebhook: {
    about:
      "Re-enables a disabled subscription. Returns how many events are about to be sent, and whether there may be more.",
    fields: {
      webhookId,
      redeliverSince: "also delivers events missed since this time, at most 30 days ago",
    },
    examples: [{ webhookId }],
  },
  sendTestEvent: {
    about: "Posts one sample event, marked as a test, and shows the receiver's answer.",
    fields: { webhookId },
    examples: [{ webhookId, type: "lead.created" }],
  },
  disableWebhook: {
    about: "Disables a subscription and cancels its pending deliveries.",
    fields: { webhookId },
    examples: [{ webhookId }],
  },
  deleteWebhook: {
    about:
      "Deletes a subscription and cancels its pending deliveries. An unknown id is not an error.",
    fields: { webhookId },
    examples: [{ webhookId }],
  },
  rotateWebhookSecret: {
    about:
      "Rotates a subscription's secret; both secrets sign until the overlap ends. The new one is shown only once.",
    fields: {
      webhookId,
      overlapSeconds: "how long the old secret also signs; default: 24 h; 0: not at all",
    },
    examples: [{ webhookId }, { webhookId, overlapSeconds: 3600 }],
  },
  resealSecrets: {
    about:
      "Re-encrypts up to 100 secrets of subscriptions and data keys of workspaces under the first encryption key.",
    fields: {},
    examples: [{}],
  },
};
