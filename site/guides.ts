import { readFileSync } from "node:fs";
import { join } from "node:path";
import { writeUnusually } from "../scripts/check-receiver/forms.ts";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  KEY_OVERLAP_MAX_SECONDS,
  PORTAL_LINK_MINUTES,
  PORTAL_LINK_OPENS_MS,
  REDELIVERIES_PER_SECOND,
  REDELIVERY_MAX_AGE_MS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SECRET_OVERLAP_SECONDS,
  TELL_AFTER_MS,
} from "../src/contract/limits.ts";
import { DAY_MS } from "../src/contract/time.ts";
import { POSTS_AT_ONCE, PROBE_AT_LEAST_MS } from "../src/delivery/policy.ts";
import { HEADERS } from "../src/delivery/post.ts";
import { signatureHeaders } from "../src/delivery/signature.ts";
import { HARD_DELIVERIES } from "../src/events/samples.ts";
import { FAILURES } from "../src/history/failures.ts";
import { introductionSections } from "../src/http/document/introduction.ts";
import { CREATION, PAGES, SECRET } from "../src/http/routes/examples.ts";
import { ORIGIN } from "./origin.ts";
import { en } from "./portal/texts/en.ts";
import { type ExampleRequest, LANGUAGES } from "./requests.ts";

/** A guide: a page of the docs, with its text in Markdown. */
export interface Guide {
  path: string;
  /** What the contents list it under. */
  group: string;
  title: string;
  text: string;
}

const RECEIVERS = [
  ["Node", "node.ts", "ts"],
  ["Workers", "worker.ts", "ts"],
  ["Python", "receiver.py", "python"],
  ["PHP", "receiver.php", "php"],
  ["Go", "receiver.go", "go"],
  ["Ruby", "receiver.rb", "ruby"],
  ["Stripe library", "stripe.ts", "ts"],
  ["Standard Webhooks", "standardwebhooks.ts", "ts"],
] as const;

/** The client files shown in the docs: its library, then its three programs and what they share. */
const CLIENT_SOURCES = [
  ...["client.ts", "api-error.ts", "webhooks.ts"],
  ...["run.ts", "leads.ts", "receive.ts", "events.ts", "copy.ts", "sync.ts"],
];

/** The files of `examples/client`; the docs offer each under `/docs/client/`. */
export const CLIENT_FILES = [
  ...CLIENT_SOURCES,
  ...["README.md", "package.json", "package-lock.json", "tsconfig.json"],
];

/** Every guide, in reading order, including those from the API's description. */
export function guides(root: string): Guide[] {
  const values = valuesOf(root);
  const textOf = (name: string): string => {
    const text = readFileSync(join(root, "site/guides", `${name}.md`), "utf8");
    // Names in capitals are variables of the deployment: the Worker fills them in (src/http/docs.ts).
    const filled = text.replace(/\{\{([a-z]\w*)\}\}/g, (_, value: string) => {
      const found = values[value];
      if (found === undefined) throw new Error(`${name}.md: no value ${value}`);
      return found;
    });
    return filled.trim();
  };
  const told = new Map(introductionSections().map(({ title, text }) => [title, text]));
  const of = (title: string, more = ""): string => {
    const text = told.get(title);
    if (!text) throw new Error(`the introduction has no section ${title}`);
    return `${text}\n\n${more}`.trim();
  };
  /** A guide with the text of `name.md`, unless told otherwise. */
  const guide = (group: string, name: string, title: string, text = textOf(name)): Guide => {
    return { path: `/docs/guides/${name}`, group, title, text };
  };
  return [
    { ...guide("Start", "quickstart", "Quickstart"), path: "/docs" },
    guide("Start", "sync", "Keep a copy in sync"),
    guide("Start", "client", "Example client"),
    guide("Start", "mcp", "Agents (MCP)"),
    guide("Start", "local", "Local development"),
    guide(
      "Requests",
      "authentication",
      "Authentication",
      of("Authentication", textOf("authentication")),
    ),
    guide("Requests", "pagination", "Pagination", of("Pagination")),
    guide("Requests", "quota", "Quota", of("Quota", textOf("quota"))),
    guide("Requests", "errors", "Errors", of("Errors")),
    guide("Requests", "idempotency", "Idempotency"),
    guide("Webhooks", "events", "Events"),
    guide("Webhooks", "webhooks", "Webhooks", of("Webhooks", textOf("webhooks"))),
    guide("Webhooks", "receivers", "Example receivers"),
    guide("Webhooks", "raw-body", "The raw body"),
    guide("Webhooks", "vector", "Signature test vector"),
    guide("Webhooks", "sources", "Where deliveries come from"),
    guide("Webhooks", "testing", "Test events"),
    guide("Webhooks", "ordering", "Ordering"),
    guide("Webhooks", "failures", "Why a delivery failed"),
    guide("Webhooks", "outage", "If your server was down"),
    guide("Webhooks", "portal", "The portal"),
    guide("Changes", "versioning", "Versioning", of("Versioning")),
    { ...guide("Changes", "changelog", "Changelog", changelog(root)), path: "/docs/changelog" },
  ];
}

/** What changed for clients, from CHANGELOG.md: each of its sections up to what concerns others. */
function changelog(root: string): string {
  const [, ...versions] = readFileSync(join(root, "CHANGELOG.md"), "utf8").split(/^## /m);
  const text = versions.map((version) => {
    const [title = "", ...sections] = version.split(/^### /m);
    const told = sections.map((section) => {
      const [kind = "", ...lines] = section.split("\n");
      const [forClients = ""] = lines.join("\n").split("For platforms and operators:");
      return `**${kind}**\n\n${forClients.trim()}`;
    });
    return `### ${title.replace(/[[\]]/g, "").trim()}\n\n${told.join("\n\n")}`;
  });
  return text.join("\n\n");
}

const VECTOR = HARD_DELIVERIES["lead.created"];
const VECTOR_BODY = writeUnusually(VECTOR);
const SIGNED = await signatureHeaders(
  SECRET,
  VECTOR.id,
  VECTOR_BODY,
  Date.parse(VECTOR.created_at),
);

function valuesOf(root: string): Record<string, string> {
  const header = (name: string) => SIGNED[name] ?? "";
  const receivers = RECEIVERS.map(([name, file, language]) =>
    alternative(name, language, readFileSync(join(root, "examples/receivers", file), "utf8")),
  );
  const client = CLIENT_SOURCES.map((file) =>
    alternative(file, "ts", readFileSync(join(root, "examples/client", file), "utf8")),
  );
  return {
    origin: ORIGIN,
    leads: JSON.stringify(PAGES.leads, null, 2),
    read: inLanguages({ method: "GET", url: `${ORIGIN}/v1/leads?limit=2` }),
    subscribe: inLanguages({ method: "POST", url: `${ORIGIN}/v1/webhooks`, body: CREATION }),
    flow: "<!-- flow -->",
    client: client.join("\n\n"),
    clientFiles: `{${CLIENT_FILES.join()}}`,
    receivers: receivers.join("\n\n"),
    keyOverlap: words(KEY_OVERLAP_MAX_SECONDS),
    secretOverlap: words(SECRET_OVERLAP_SECONDS.default),
    secretOverlapMax: words(SECRET_OVERLAP_SECONDS.max),
    postsAtOnce: String(POSTS_AT_ONCE),
    jitter: `${RETRY_JITTER * 100}%`,
    linkOpens: words(PORTAL_LINK_OPENS_MS / 1000),
    session: words(PORTAL_LINK_MINUTES.default * 60),
    redeliveriesPerSecond: String(REDELIVERIES_PER_SECOND),
    keepIdsDays: String(REDELIVERY_MAX_AGE_MS / DAY_MS + 1),
    replayDays: String(REDELIVERY_MAX_AGE_MS / DAY_MS),
    missed: en.enable.missed,
    sendAgain: en.sendAgain.button,
    timeline: timeline(),
    failures: failures(),
    userAgent: HEADERS["User-Agent"],
    secret: SECRET,
    timestamp: header("webhook-timestamp"),
    signature: header("X-Service-Signature"),
    id: header("webhook-id"),
    standard: header("webhook-signature"),
    body: VECTOR_BODY,
  };
}

/** What becomes of a subscription whose receiver does not answer, as a table. */
function timeline(): string {
  const sums = RETRY_WAITS_SECONDS.map((_, i) =>
    RETRY_WAITS_SECONDS.slice(0, i + 1).reduce((sum, seconds) => sum + seconds, 0),
  );
  const disabledAt = sums.findIndex(
    (seconds, i) => seconds * 1000 >= DISABLE_AFTER_MS && i + 2 >= DISABLE_AFTER_FAILURES,
  );
  const [last = 0] = sums.slice(disabledAt);
  const told = TELL_AFTER_MS / 1000;
  const tries = (from: number, to: number) =>
    sums.filter((seconds) => seconds > from && seconds < to).map(words);
  const rows = [
    ["at once", "The first event fails. From now on, one at a time is tried; the others wait."],
    [
      tries(0, told).join(", "),
      `It is tried again, and with its first success the others follow. Once several events have failed, one of them is tried at least every ${words(PROBE_AT_LEAST_MS / 1000)}.`,
    ],
    [words(told), "The workspace's administrators get an e-mail."],
    [tries(told, last).join(", "), "It is tried again."],
    [
      words(DISABLE_AFTER_MS / 1000),
      `With the next failure, if there were ${DISABLE_AFTER_FAILURES} at more than one event, the subscription is disabled, and the administrators get another e-mail. What was pending, and what happens from now on, is kept, but not sent by itself.`,
    ],
    [
      `up to ${REDELIVERY_MAX_AGE_MS / DAY_MS} days`,
      "Enabling it again sends everything that it missed, in one click.",
    ],
  ];
  const lines = rows.map(([at, what]) => `| ${at} | ${what} |`);
  return ["| After | What happens |", "| --- | --- |", ...lines].join("\n");
}

/** What each failure means and what to do about it, as a table. */
function failures(): string {
  const rows = Object.entries<(typeof FAILURES)["5xx"]>(FAILURES).map(([result, { en }]) => {
    const name = /^5[23]\d/.test(result) ? `unreachable ${result}` : result;
    return `| \`${name}\` | ${en.join(" | ")} |`;
  });
  return ["| Result | What happened | What to do |", "| --- | --- | --- |", ...rows].join("\n");
}

/** A length of time in the unit that people would use, kept on one line. */
function words(seconds: number): string {
  if (seconds < 60) return `${seconds}\u00a0s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)}\u00a0min`;
  if (seconds < 4 * 86_400) return `${Math.round(seconds / 360) / 10}\u00a0h`;
  return `${seconds / 86_400} days`;
}

/** A request in each language. */
function inLanguages(request: ExampleRequest): string {
  return LANGUAGES.map(({ name, highlight, write }) =>
    alternative(name, highlight, write(request)),
  ).join("\n\n");
}

/** Code under a level-4 heading: the page shows one of these at a time (site/pages.ts). */
function alternative(name: string, language: string, code: string): string {
  return `#### ${name}\n\n\`\`\`${language}\n${code.trim()}\n\`\`\``;
}
