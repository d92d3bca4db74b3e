import { PAGE_LIMIT, SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import { deliveryOperation } from "./deliveries.ts";
import { AUTOMATION, CREATION, PAGES, PAUSED, SECRET, WEBHOOK } from "./examples.ts";
import { empty, errors, json } from "./responses.ts";

/** The parameters that operations share, by name. */
export const PARAMETERS = {
  Limit: {
    name: "limit",
    in: "query",
    required: false,
    description: `Maximum number of items on the page, ${PAGE_LIMIT.min} to ${PAGE_LIMIT.max}. Any other value is rejected, never corrected.`,
    schema: {
      type: "integer",
      minimum: PAGE_LIMIT.min,
      maximum: PAGE_LIMIT.max,
      default: PAGE_LIMIT.default,
    },
    example: 2,
  },
  Cursor: {
    name: "cursor",
    in: "query",
    required: false,
    description:
      "The `next_cursor` of the previous page. Absent, empty, or the word `null`: the first page.",
    schema: { type: "string" },
  },
  AutomationId: {
    name: "id",
    in: "path",
    required: true,
    description: "The automation's `id`, which starts with `aut_`.",
    schema: { type: "string" },
    example: AUTOMATION.id,
  },
  WebhookId: {
    name: "id",
    in: "path",
    required: true,
    description: "The subscription's `id`, which starts with `whk_`.",
    schema: { type: "string" },
    example: WEBHOOK.id,
  },
};

function parameters(...names: (keyof typeof PARAMETERS)[]) {
  return names.map((name) => ({ $ref: `#/components/parameters/${name}` }));
}

function body(schema: string, example: unknown) {
  return {
    required: true,
    content: {
      "application/json": { schema: { $ref: `#/components/schemas/${schema}` }, example },
    },
  };
}

const NEWEST_FIRST =
  "Paginated, newest first. Items added in the meantime cause no gaps or repetitions.";

/** The operations of the API. A test checks them against the Worker's routes. */
export const PATHS = {
  "/v1/automations": {
    get: {
      operationId: "listAutomations",
      tags: ["Automations"],
      summary: "List the automations of the workspace",
      description: `${NEWEST_FIRST} Sorted by when the automations first appeared here, a time that is not part of the response. Changes do not affect the order.`,
      parameters: parameters("Limit", "Cursor"),
      responses: {
        200: json("A page of automations, newest first.", "AutomationPage", PAGES.automations),
        ...errors({ 400: "InvalidQuery" }),
      },
    },
  },
  "/v1/automations/{id}": {
    get: {
      operationId: "getAutomation",
      tags: ["Automations"],
      summary: "Read one automation",
      description:
        "Automations whose account was unsubscribed no longer exist here, nor do their runs.",
      parameters: parameters("AutomationId"),
      responses: {
        200: json("The automation.", "Automation", AUTOMATION),
        ...errors({ 404: "AutomationNotFound" }),
      },
    },
    patch: {
      operationId: "controlAutomation",
      tags: ["Automations"],
      summary: "Pause or activate an automation",
      description:
        "Takes effect immediately and is announced to subscribers of `automation.status_changed`. If the automation already has that status, the response is still 200, `updated_at` does not change and nothing is announced, so the request is safe to repeat. An automation in `draft` or `error` gives 422.",
      parameters: parameters("AutomationId"),
      requestBody: body("AutomationControl", { status: PAUSED.status }),
      responses: {
        200: json("The automation as it is now.", "Automation", PAUSED),
        ...errors({
          400: "InvalidControl",
          404: "AutomationNotFound",
          413: "BodyTooLarge",
          415: "UnsupportedMediaType",
          422: "AutomationNotControllable",
        }),
      },
    },
  },
  "/v1/leads": {
    get: {
      operationId: "listLeads",
      tags: ["Leads"],
      summary: "List the leads of the workspace",
      description: `${NEWEST_FIRST} Sorted by \`created_at\`. To learn of new leads as they come in, subscribe to \`lead.created\` instead of polling.`,
      parameters: parameters("Limit", "Cursor"),
      responses: {
        200: json("A page of leads, newest first.", "LeadPage", PAGES.leads),
        ...errors({ 400: "InvalidQuery" }),
      },
    },
  },
  "/v1/runs": {
    get: {
      operationId: "listRuns",
      tags: ["Runs"],
      summary: "List the runs of the workspace",
      description: `${NEWEST_FIRST} Sorted by \`occurred_at\`.`,
      parameters: parameters("Limit", "Cursor"),
      responses: {
        200: json("A page of runs, newest first.", "RunPage", PAGES.runs),
        ...errors({ 400: "InvalidQuery" }),
      },
    },
  },
  "/v1/automations/{id}/runs": {
    get: {
      operationId: "listRunsOfAutomation",
      tags: ["Runs"],
      summary: "List the runs of one automation",
      description: `${NEWEST_FIRST} Sorted by \`occurred_at\`.`,
      parameters: parameters("AutomationId", "Limit", "Cursor"),
      responses: {
        200: json("A page of its runs, newest first.", "RunPage", PAGES.runs),
        ...errors({ 400: "InvalidQuery", 404: "AutomationNotFound" }),
      },
    },
  },
  "/v1/webhooks": {
    get: {
      operationId: "listWebhooks",
      tags: ["Webhooks"],
      summary: "List the subscriptions of the workspace",
      description: `${NEWEST_FIRST} Sorted by \`created_at\`. Secrets are not included.`,
      parameters: parameters("Limit", "Cursor"),
      responses: {
        200: json("A page of subscriptions, newest first.", "WebhookPage", PAGES.webhooks),
        ...errors({ 400: "InvalidQuery" }),
      },
    },
    post: {
      operationId: "createWebhook",
      tags: ["Webhooks"],
      summary: "Subscribe to events",
      description: `From now on, events of the kinds you list are posted to your URL, signed with the \`secret\` in the response. Store it: it is not shown again. A workspace has at most ${SUBSCRIPTIONS_MAX} subscriptions, unless agreed otherwise. The request is not idempotent: sent twice, it creates two subscriptions.`,
      requestBody: body("WebhookCreation", CREATION),
      responses: {
        201: json("The subscription, with its secret.", "WebhookWithSecret", {
          ...WEBHOOK,
          secret: SECRET,
        }),
        ...errors({
          400: "InvalidSubscription",
          413: "BodyTooLarge",
          415: "UnsupportedMediaType",
        }),
      },
      callbacks: { event: { "{$request.body#/url}": { post: deliveryOperation() } } },
    },
  },
  "/v1/webhooks/{id}": {
    delete: {
      operationId: "deleteWebhook",
      tags: ["Webhooks"],
      summary: "Remove a subscription",
      description:
        "Nothing more is posted to it; pending deliveries are cancelled. Deleting it again gives 404.",
      parameters: parameters("WebhookId"),
      responses: {
        204: empty("The subscription is deleted."),
        ...errors({ 404: "WebhookNotFound" }),
      },
    },
  },
};
