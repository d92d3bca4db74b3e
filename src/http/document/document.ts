import { ErrorBodySchema } from "../../contract/error-body.ts";
import { helpFor } from "../../contract/errors.ts";
import { CONTRACT_VERSION } from "../../contract/version.ts";
import { app } from "../app.ts";
import type { Header } from "../responses.ts";
import { registerCallback, registerWebhooks } from "./deliveries.ts";
import { errorResponses } from "./errors.ts";
import { introduction } from "./introduction.ts";

/** Where integrators find help. A deployment shows its own `SUPPORT_EMAIL` and `SUPPORT_URL` instead. */
const CONTACT = {
  name: "API support",
  email: "api@example.com",
  url: "https://example.com/support",
};

// This object stands outside the call below, because `info` has the type of OpenAPI 3.0 there.
const INFO = {
  title: "Public API",
  version: CONTRACT_VERSION,
  summary: "A workspace's automations, leads and runs, and its events as webhooks.",
  description: introduction(),
  contact: CONTACT,
  license: { name: "MIT", identifier: "MIT" },
};

const TAGS = [
  {
    name: "Automations",
    description:
      "An automation reacts to a trigger, such as a comment or a form, on behalf of an agent. You can read, pause and activate automations. They are created in the app.",
  },
  { name: "Leads", description: "The people that your agents captured, from any source." },
  {
    name: "Runs",
    description: "The reactions of automations, one run for each.",
  },
  {
    name: "Webhooks",
    description: "Events are sent to your endpoint, signed, as they happen.",
  },
];

/** The rate limit in the examples of the headers below. */
const QUOTA = { requests: 600, left: 599, seconds: 60 };

const HEADERS = {
  "Cache-Control": header("Always `no-store`, because the data is personal.", {
    type: "string",
    enum: ["no-store"],
  }),
  "X-RateLimit-Limit": header(
    "Requests that the key may make per window, including those that get 403. On a 401, the failed authentications that the IP address may make.",
    { type: "integer", example: QUOTA.requests },
  ),
  "X-RateLimit-Remaining": header("Requests left in this window.", {
    type: "integer",
    example: QUOTA.left,
  }),
  "X-RateLimit-Reset": header("Seconds until the window resets. Not a timestamp.", {
    type: "integer",
    example: QUOTA.seconds,
  }),
  "RateLimit-Policy": header(
    "The same limit, and the length of its window in seconds, in the format of IETF [draft 11](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/).",
    { type: "string", example: `"default";q=${QUOTA.requests};w=${QUOTA.seconds}` },
  ),
  RateLimit: header(
    "The requests left, and the seconds until the window resets, in the same format.",
    {
      type: "string",
      example: `"default";r=${QUOTA.left};t=${QUOTA.seconds}`,
    },
  ),
  "X-Request-Id": header("Identifies this request in our logs. Quote it when you contact us.", {
    type: "string",
    example: "9c1f2e6a4b7d8035-CDG",
  }),
  Link: header('With `rel="help"`, the section of the docs that explains the error code.', {
    type: "string",
    example: `<${helpFor("rate_limited")}>; rel="help"`,
  }),
  "WWW-Authenticate": header("Always `Bearer`, whatever is wrong with the key.", {
    type: "string",
    enum: ["Bearer"],
  }),
  "Retry-After": header("Seconds to wait before the next request.", {
    type: "integer",
    example: 42,
  }),
  "Retry-After-If-Temporary": {
    ...header("Seconds to wait before the next request, if a later one may succeed.", {
      type: "integer",
      example: 5,
    }),
    required: false,
  },
} satisfies Record<Header, object>;

function header(
  description: string,
  schema: { type: "string" | "integer"; enum?: string[]; example?: unknown },
) {
  return { description, required: true, schema };
}

// The components that routes refer to, and the webhooks, which no route declares.
const { openAPIRegistry: registry } = app;
registry.registerComponent("securitySchemes", "apiKey", {
  type: "http",
  scheme: "bearer",
  description:
    "An API key of the workspace: `key_live_` followed by 32 characters. Create keys in the workspace settings of the app, under API.",
});
for (const [name, component] of Object.entries(HEADERS))
  registry.registerComponent("headers", name, component);
registry.register("Error", ErrorBodySchema);
for (const { name, response } of errorResponses())
  registry.registerComponent("responses", name, response);
registerCallback(registry);
await registerWebhooks(registry);

const shared = (server: string) => ({
  servers: [{ url: server, description: "This deployment" }],
  security: [{ apiKey: [] }],
  tags: TAGS,
});

/**
 * Builds the OpenAPI 3.1 document from the routes of the app. It is built ahead of time and served as a file, so that
 * no request waits for it.
 *
 * @param server the base URL of the API; `/` is the origin that the document was read from.
 */
export function buildDocument(server = "/") {
  return app.getOpenAPI31Document({ openapi: "3.1.0", info: INFO, ...shared(server) });
}

/** Builds the document as OpenAPI 3.0, which has no webhooks, for tools that read nothing newer. */
export function buildDocument30(server = "/") {
  const { summary: _, ...known } = INFO;
  const license = { name: "MIT", url: "https://opensource.org/license/mit" };
  const info = { ...known, license };
  return app.getOpenAPIDocument({ openapi: "3.0.3", info, ...shared(server) });
}
