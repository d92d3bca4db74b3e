import { PAGE_LIMIT, SUBSCRIPTIONS_MAX } from "../contract/limits.ts";
import { deliveryOperation } from "./deliveries.ts";
import { AUTOMATION, CREATION, PAGES, PAUSED, SECRET, WEBHOOK } from "./examples.ts";
import { empty, errors, json } from "./responses.ts";

/** The parameters that operations share, by their names. */
export const PARAMETERS = {
  Limit: {
    name: "limit",
    in: "query",
    required: false,
    description: `How many items the page may hold, ${PAGE_LIMIT.min} to ${PAGE_LIMIT.max}. Anything else is refused, never corrected.`,
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
      "Where the page begins: the `next_cursor` of the page before it. Left out, empty, or the word `null`: the first page.",
    schema: { type: "string" },
  },
  AutomationId: {
    name: "id",
    in: "path",
    required: true,
    description: "The `id` of the automation, starting with `aut_`.",
    schema: { type: "string" },
    example: AUTOMATION.id,
  },
  WebhookId: {
    name: "id",
    in: "path",
    required: true,
    description: "The `id` of the subscription, starting with `whk_`.",
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
  "Newest first, in pages. Items that are added meanwhile neither repeat nor hide any of the others.";

/** The operations of the API. A test holds them against the routes that the Worker has. */
export const PATHS = {
  "/v1/automations": {
    get: {
      operationId: "listAutomations",
      tags: ["Automations"],
      summary: "List the automations of the workspace",
      description: `${NEWEST_FIRST} The order is that in which the automations first appeared here, though they do not show that time; a change does not move one.`,
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
      description: "One whose account was disconnected for good is gone, with its runs.",
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
        "Takes effect at once. A change is announced to the subscribers of `automation.status_changed`. An automation that is in that state already stays as it is: the answer is 200 all the same, `updated_at` does not move and nothing is announced, so it is safe to repeat the request. One that is `draft` or `error` is refused with 422.",
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
      description: `${NEWEST_FIRST} The order is that of \`created_at\`. To hear of new leads as they come, subscribe to \`lead.created\` rather than asking again and again.`,
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
      description: `${NEWEST_FIRST} The order is that of \`occurred_at\`.`,
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
      description: `${NEWEST_FIRST} The order is that of \`occurred_at\`.`,
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
      description: `${NEWEST_FIRST} The order is that of \`created_at\`. No answer of this operation holds a secret.`,
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
      description: `From now on, the events that you list are posted to your URL, signed with the \`secret\` of the answer. Store it: no later answer holds it. A workspace has at most ${SUBSCRIPTIONS_MAX} subscriptions, unless agreed otherwise. The request is not idempotent: sent twice, it makes two subscriptions.`,
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
        "Nothing is posted to it any more, not even what it was still owed. A second deletion answers 404.",
      parameters: parameters("WebhookId"),
      responses: {
        204: empty("The subscription is deleted."),
        ...errors({ 404: "WebhookNotFound" }),
      },
    },
  },
};
