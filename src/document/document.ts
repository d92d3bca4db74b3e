import { OpenApiGeneratorV31 } from "@asteasolutions/zod-to-openapi";
import * as z from "zod";
import { ErrorBody } from "../contract/error-body.ts";
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
import { requestBodies } from "./requests.ts";
import { HEADERS, RESPONSES } from "./responses.ts";

/** The version of the API contract; CHANGELOG.md says which changes need a new one. */
const CONTRACT_VERSION = "1.0.0-draft.2";

/** The pagination envelope of a list of `item`. */
function pageOf(item: z.ZodType, id: string, what: string) {
  return z
    .object({
      data: z.array(item).meta({ description: `The ${what} of this page, newest first.` }),
      has_more: z.boolean().meta({
        description:
          "Whether there is another page. A page of very large items ends early, before 2 MB.",
        example: false,
      }),
      next_cursor: z.string().nullable().meta({
        description: "The `cursor` for the next page; null on the last page.",
        example: null,
      }),
    })
    .meta({ id, description: `A page of ${what}.` });
}

const SCHEMAS = [
  Automation,
  pageOf(Automation, "AutomationPage", "automations"),
  Lead,
  pageOf(Lead, "LeadPage", "leads"),
  Run,
  pageOf(Run, "RunPage", "runs"),
  Webhook,
  pageOf(Webhook, "WebhookPage", "subscriptions"),
  WebhookWithSecret,
  WebhookDelivery,
  ErrorBody,
];

const TAGS = [
  {
    name: "Automations",
    description:
      "An automation reacts to a trigger, such as a comment or a form, on behalf of an agent. You can read, pause and activate automations; they are created in the application.",
  },
  { name: "Leads", description: "The people that your agents captured, from any source." },
  {
    name: "Runs",
    description: "What the automations did: one run per reaction.",
  },
  {
    name: "Webhooks",
    description:
      "Subscriptions to events. Events are posted to your server, signed, as they happen.",
  },
];

/** Adds the descriptions of the enumerations to the schemas. */
function described(schemas: Record<string, object>) {
  return Object.fromEntries(
    Object.entries(schemas).map(([name, schema]) => {
      const description = ENUMERATIONS[name];
      return [name, description ? { ...schema, description } : schema];
    }),
  );
}

/**
 * Builds the OpenAPI 3.1 document of the API. It is built ahead of time and served as a file: the
 * Worker does not need it to answer requests.
 *
 * @param server the API's address; `/` is wherever the document was read from.
 */
export async function buildDocument(server = "/") {
  const definitions = SCHEMAS.map((schema) => ({ type: "schema" as const, schema }));
  const { components } = new OpenApiGeneratorV31(definitions).generateComponents();
  return {
    openapi: "3.1.0",
    info: {
      title: "Public API",
      version: CONTRACT_VERSION,
      summary: "A workspace's automations, leads and runs, and its events as webhooks.",
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
      schemas: described({ ...components?.schemas, ...requestBodies() }),
      parameters: PARAMETERS,
      headers: HEADERS,
      responses: RESPONSES,
      securitySchemes: {
        apiKey: {
          type: "http",
          scheme: "bearer",
          description:
            "An API key of the workspace: `key_live_` followed by 32 characters. Keys are created in the workspace settings, under API.",
        },
      },
    },
  };
}
