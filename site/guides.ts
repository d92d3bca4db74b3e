import { readFileSync } from "node:fs";
import { join } from "node:path";
import { introductionSections } from "../src/http/document/introduction.ts";
import { CREATION, DELIVERIES, PAGES, SECRET } from "../src/http/routes/examples.ts";
import { shellJson } from "./openapi.ts";
import { ORIGIN } from "./origin.ts";

/** A section of the docs: its anchor, its title, and its text in Markdown. */
export interface Guide {
  id: string;
  title: string;
  text: string;
}

const RECEIVERS = [
  ["Node", "node.ts", "ts"],
  ["Workers", "worker.ts", "ts"],
  ["Python", "receiver.py", "python"],
  ["PHP", "receiver.php", "php"],
  ["Stripe library", "stripe.ts", "ts"],
  ["Standard Webhooks", "standardwebhooks.ts", "ts"],
] as const;

/** The client files shown in the docs: its library, then its two programs and what they share. */
const CLIENT_SOURCES = [
  "client.ts",
  "api-error.ts",
  "webhooks.ts",
  "run.ts",
  "leads.ts",
  "events.ts",
];

/** The files of `examples/client`; the docs offer each under `/docs/client/`. */
export const CLIENT_FILES = [
  ...CLIENT_SOURCES,
  ...["README.md", "package.json", "package-lock.json", "tsconfig.json"],
];

const TITLES = {
  quickstart: "Quickstart",
  events: "Events",
  client: "Example client",
  receivers: "Example receivers",
  vector: "Signature test vector",
  idempotency: "Idempotency",
  local: "Local development",
};

/** Every guide, in reading order, including those from the API's description. */
export function guides(root: string, webhooks: Record<string, Webhook>): Guide[] {
  const values = valuesOf(root, webhooks);
  const own = (id: keyof typeof TITLES): Guide => {
    const text = readFileSync(join(root, "site/guides", `${id}.md`), "utf8");
    const filled = text.replace(/\{\{(\w+)\}\}/g, (_, name: string) => {
      const value = values[name];
      if (value === undefined) throw new Error(`${id}.md: no value ${name}`);
      return value;
    });
    return { id, title: TITLES[id], text: filled.trim() };
  };
  const told = Object.fromEntries(
    introductionSections().map(({ title, text }) => [
      title,
      { id: title.toLowerCase(), title, text },
    ]),
  );
  const of = (title: string): Guide => {
    const guide = told[title];
    if (!guide) throw new Error(`the introduction has no section ${title}`);
    return guide;
  };
  return [
    own("quickstart"),
    own("events"),
    of("Authentication"),
    of("Pagination"),
    of("Quota"),
    of("Errors"),
    own("client"),
    of("Webhooks"),
    own("receivers"),
    own("vector"),
    own("idempotency"),
    own("local"),
    of("Versioning"),
  ];
}

interface Webhook {
  post: { parameters: { name: string; example: string }[] };
}

function valuesOf(root: string, webhooks: Record<string, Webhook>): Record<string, string> {
  const parameters = webhooks["lead.created"]?.post.parameters ?? [];
  const header = (name: string) => parameters.find((one) => one.name === name)?.example ?? "";
  const receivers = RECEIVERS.map(([name, file, language]) =>
    alternative(name, language, join(root, "examples/receivers", file)),
  );
  const client = CLIENT_SOURCES.map((file) =>
    alternative(file, "ts", join(root, "examples/client", file)),
  );
  return {
    origin: ORIGIN,
    leads: JSON.stringify(PAGES.leads, null, 2),
    creation: shellJson(CREATION),
    flow: "<!-- flow -->",
    client: client.join("\n\n"),
    clientFiles: `{${CLIENT_FILES.join()}}`,
    receivers: receivers.join("\n\n"),
    secret: SECRET,
    timestamp: header("webhook-timestamp"),
    signature: header("X-Service-Signature"),
    id: header("webhook-id"),
    standard: header("webhook-signature"),
    body: JSON.stringify(DELIVERIES["lead.created"]),
  };
}

/** A file under a level-4 heading: the page shows one of these at a time (site/page.ts). */
function alternative(name: string, language: string, path: string): string {
  return `#### ${name}\n\n\`\`\`${language}\n${readFileSync(path, "utf8").trim()}\n\`\`\``;
}
