import { OpenApiGeneratorV31 } from "@asteasolutions/zod-to-openapi";
import * as z from "zod";
import { ErrorBody } from "../contract/error-body.ts";
import { AutomationControl, WebhookCreation } from "../contract/requests.ts";
import {
  Automation,
  Lead,
  Run,
  Webhook,
  WebhookDelivery,
  WebhookWithSecret,
} from "../contract/resources.ts";
import { webhooks } from "./deliveries.ts";
import { ENUMERATIONS } from "./enumerations.ts";
import { introduction } from "./introduction.ts";
import { PARAMETERS, PATHS } from "./operations.ts";
import { HEADERS, RESPONSES } from "./responses.ts";

/** The version of the contract (contract, Versioning). */
const CONTRACT_VERSION = "1.0.0-draft.2";

/** The envelope of a list of `item`. */
function pageOf(item: z.ZodType, id: string, what: string) {
  return z
    .object({
      data: z.array(item).meta({ description: `The ${what} of this page, newest first.` }),
      has_more: z.boolean().meta({ description: "Whether a further page exists.", example: false }),
      next_cursor: z.string().nullable().meta({
        description: "What to send as `cursor` for the next page; null on the last one.",
        example: null,
      }),
    })
    .meta({ id, description: `A page of ${what}.` });
}

const SCHEMAS = [
  Automation,
  pageOf(Automation, "AutomationPage", "automations"),
  AutomationControl,
  Lead,
  pageOf(Lead, "LeadPage", "leads"),
  Run,
  pageOf(Run, "RunPage", "runs"),
  Webhook,
  pageOf(Webhook, "WebhookPage", "subscriptions"),
  WebhookCreation,
  WebhookWithSecret,
  WebhookDelivery,
  ErrorBody,
];

const TAGS = [
  {
    name: "Automations",
    description:
      "An automation reacts to something, such as a comment or a form, on behalf of an agent. Read them, pause them, activate them; they are made in the application.",
  },
  { name: "Leads", description: "The people that your agents captured, from any source." },
  {
    name: "Runs",
    description: "What the automations did: one run for each time that one of them reacted.",
  },
  {
    name: "Webhooks",
    description:
      "Subscriptions, and the events that they get: signed posts to your server, within moments.",
  },
];

/** The schemas, with what their enumerations mean. */
function described(schemas: Record<string, object>) {
  return Object.fromEntries(
    Object.entries(schemas).map(([name, schema]) => {
      const description = ENUMERATIONS[name];
      return [name, description ? { ...schema, description } : schema];
    }),
  );
}

/**
 * The OpenAPI 3.1 document of the API. It is made with the build, and served as a file: a Worker
 * that answers requests has no use for it.
 *
 * @param server where the API is; `/` stands for wherever the document was read from.
 */
export async function buildDocument(server = "/") {
  const definitions = SCHEMAS.map((schema) => ({ type: "schema" as const, schema }));
  const { components } = new OpenApiGeneratorV31(definitions).generateComponents();
  return {
    openapi: "3.1.0",
    info: {
      title: "Public API",
      version: CONTRACT_VERSION,
      summary: "The automations, leads and runs of a workspace, and its events, pushed.",
      description: introduction(),
      contact: {
        name: "API support",
        email: "api@example.com",
        url: "https://example.com/support",
      },
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [{ url: server, description: "This deployment" }],
    security: [{ apiKey: [] }],
    tags: TAGS,
    paths: PATHS,
    webhooks: await webhooks(),
    components: {
      schemas: described(components?.schemas ?? {}),
      parameters: PARAMETERS,
      headers: HEADERS,
      responses: RESPONSES,
      securitySchemes: {
        apiKey: {
          type: "http",
          scheme: "bearer",
          description:
            "An API key of the workspace, `key_live_` and 32 characters. Keys are made in the settings of the workspace, in the section API.",
        },
      },
    },
  };
}
