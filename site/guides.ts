import { readFileSync } from "node:fs";
import { join } from "node:path";
import { mapEventTypes } from "../src/contract/event-types.ts";
import {
  AGREED_SUBSCRIPTIONS_MAX,
  BODY_MAX_BYTES,
  BODY_MAX_MS,
  DESCRIPTION_MAX_LENGTH,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  EXPIRES_AFTER_MS,
  FAILING_SPACING_SECONDS,
  HEADER_VALUE_MAX_LENGTH,
  HEADERS_MAX,
  KEY_OVERLAP_MAX_SECONDS,
  OUTAGE_SPACING_SECONDS,
  PAGE_LIMIT,
  PAGE_MAX_BYTES,
  PENDING_MAX,
  PORTAL_LINK_MINUTES,
  PORTAL_LINK_OPENS_MS,
  POST_TIMEOUT_MS,
  READ_MAX_MS,
  RECORD_MAX_BYTES,
  REDELIVERIES_PER_SECOND,
  REDELIVERY_MAX_AGE_MS,
  RESENDS_AHEAD_MS,
  RESPONSES_PER_DAY,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_SCHEDULE_MS,
  RETRY_WAITS_SECONDS,
  SECRET_OVERLAP_SECONDS,
  SPACED_FROM_EVENTS,
  STOPS_WITHIN_MS,
  SUBSCRIPTIONS_MAX,
  TELL_AFTER_MS,
  TEST_EVENTS_PER_MINUTE,
  URL_MAX_LENGTH,
} from "../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../src/contract/time.ts";
import { CONCURRENCY_MAX } from "../src/delivery/policy.ts";
import { HEADERS, WEBHOOK_HEADER } from "../src/delivery/post.ts";
import { signatureHeaders } from "../src/endpoints/signature.ts";
import { DELIVERIES, HARD_DELIVERIES, writeUnusually } from "../src/events/samples.ts";
import { FAILURES } from "../src/history/failures.ts";
import { introductionSections } from "../src/http/document/introduction.ts";
import { CREATION, PAGES, SECRET, WEBHOOK } from "../src/http/routes/examples.ts";
import { KEY_LENGTH } from "../src/http/routes/webhooks.ts";
import { SHOWN_PERSON } from "../src/records/person.ts";
import { ORIGIN } from "./origin.ts";
import { placeOfPicture } from "./pictures.ts";
import { en } from "./portal/texts/en.ts";
import { type ExampleRequest, LANGUAGES } from "./requests.ts";

/** A guide: a page of the docs, with its text in Markdown. */
export interface Guide {
  path: string;
  /** The group in the table of contents. */
  group: string;
  title: string;
  text: string;
}

const RECEIVERS = [
  ["Standard Webhooks", "standardwebhooks.ts", "ts"],
  ["Stripe library", "stripe.ts", "ts"],
  ["Node", "node.ts", "ts"],
  ["Workers", "worker.ts", "ts"],
  ["Python", "receiver.py", "python"],
  ["PHP", "receiver.php", "php"],
  ["Go", "receiver.go", "go"],
  ["Ruby", "receiver.rb", "ruby"],
  ["Java", "Receiver.java", "java"],
] as const;

/** How long an event can be resent. */
const REPLAY_DAYS = REDELIVERY_MAX_AGE_MS / DAY_MS;
/** How long the same event may still arrive: resent on its last day, it is retried, and may wait until it expires. */
export const KEEP_IDS_DAYS =
  REPLAY_DAYS + Math.ceil((RETRY_SCHEDULE_MS * (1 + RETRY_JITTER) + EXPIRES_AFTER_MS) / DAY_MS);

/** The client files shown in the docs: its library, then its three programs and what they share. */
const CLIENT_SOURCES = [
  "client.ts",
  "api-error.ts",
  "webhooks.ts",
  "run.ts",
  "leads.ts",
  "receive.ts",
  "events.ts",
  "copy.ts",
  "sync.ts",
];

/** The files of `examples/client`; the docs offer each under `/docs/client/`. */
export const CLIENT_FILES = [
  ...CLIENT_SOURCES,
  ...["README.md", "package.json", "package-lock.json", "tsconfig.json"],
];

/** Every guide, in reading order. Some begin with a section of the API's description. */
export function guides(root: string): Guide[] {
  const values = valuesOf(root);
  const read = (name: string): string => {
    const text = readFileSync(join(root, "site/guides", `${name}.md`), "utf8");
    // Names in capitals are variables of the deployment: the Worker fills them in (src/http/docs.ts).
    const filled = text.replace(/\{\{([a-z]\w*)\}\}/g, (_, value: string) => {
      const found = values[value];
      if (found === undefined) throw new Error(`${name}.md: no value ${value}`);
      return found;
    });
    return filled.trim();
  };
  const introduction = new Map(introductionSections().map(({ title, text }) => [title, text]));
  const guide = (group: string, name: string, title: string): Guide => {
    return { path: `/docs/guides/${name}`, group, title, text: read(name) };
  };
  /** A guide that begins with a section of the introduction. */
  const introduced = (name: string, title: string, section: string, rest = read(name)): Guide => {
    const first = introduction.get(section);
    if (!first) throw new Error(`the introduction has no section ${section}`);
    const text = `${first}\n\n${rest}`.trim();
    return { path: `/docs/guides/${name}`, group: "Requests", title, text };
  };
  return [
    { ...guide("Start", "quickstart", "Quickstart"), path: "/docs" },
    guide("Start", "concepts", "Core concepts"),
    guide("Start", "sync", "Keep a copy in sync"),
    guide("Start", "client", "Example client"),
    guide("Start", "mcp", "AI agents (MCP)"),
    guide("Start", "local", "Local development"),
    introduced("authentication", "API keys and security", "Authentication"),
    introduced("pagination", "Pagination", "Pagination", ""),
    introduced("rate-limits", "Rate limits", "Rate limits"),
    introduced("errors", "Handle errors", "Errors"),
    guide("Requests", "idempotency", "Retry requests safely"),
    guide("Webhooks", "webhooks", "Receive your first event"),
    guide("Webhooks", "signatures", "Verify signatures"),
    guide("Webhooks", "processing", "Process events reliably"),
    guide("Webhooks", "retries", "Retries, failures and recovery"),
    guide("Webhooks", "events", "Event types"),
    guide("Webhooks", "network", "Network and security"),
    guide("Webhooks", "testing", "Test events"),
    guide("Webhooks", "portal", "The portal"),
    guide("Webhooks", "troubleshooting", "Troubleshooting"),
    guide("Production", "go-live", "Go-live checklist"),
    guide("Production", "limits", "Limits"),
    guide("Production", "personal-data", "Personal data"),
    guide("Production", "support", "Support and status"),
    guide("Changes", "versioning", "Versioning and deprecation"),
    { group: "Changes", title: "Changelog", path: "/docs/changelog", text: changelog(root) },
  ];
}

/** Returns the changes for clients from CHANGELOG.md, without the sections for platforms and operators. */
function changelog(root: string): string {
  const [, ...versions] = readFileSync(join(root, "CHANGELOG.md"), "utf8").split(/^## /m);
  const text = versions.map((version) => {
    const [title = "", ...sections] = version.split(/^### /m);
    const shown = sections
      .filter((section) => !/^For (platforms|operators)\n/.test(section))
      .map((section) => {
        const [heading = "", ...lines] = section.split("\n");
        return `**${heading.replace(/ for clients$/, "")}**\n\n${lines.join("\n").trim()}`;
      });
    return `### ${title.replace(/[[\]]/g, "").trim()}\n\n${shown.join("\n\n")}`;
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
    flow: placeOfPicture("flow"),
    concepts: placeOfPicture("concepts"),
    client: client.join("\n\n"),
    clientFiles: `{${CLIENT_FILES.join()}}`,
    receivers: receivers.join("\n\n"),
    timeout: words(POST_TIMEOUT_MS / 1000),
    readMax: words(READ_MAX_MS / 1000),
    recordMax: kibibytes(RECORD_MAX_BYTES),
    urlMax: number(URL_MAX_LENGTH),
    headersMax: String(HEADERS_MAX),
    headerValueMax: number(HEADER_VALUE_MAX_LENGTH),
    stopWithin: words(STOPS_WITHIN_MS / 1000),
    keyOverlap: words(KEY_OVERLAP_MAX_SECONDS),
    secretOverlap: words(SECRET_OVERLAP_SECONDS.default),
    secretOverlapMax: words(SECRET_OVERLAP_SECONDS.max),
    concurrency: String(CONCURRENCY_MAX),
    attempts: String(RETRY_WAITS_SECONDS.length + 1),
    jitter: `${RETRY_JITTER * 100}%`,
    schedule: schedule(),
    lastAttempt: lastAttempt(),
    retryDays: `${Math.round(RETRY_SCHEDULE_MS / DAY_MS)} days`,
    toleratedFailures: String(SPACED_FROM_EVENTS),
    spacingFrom: words(Math.min(...FAILING_SPACING_SECONDS)),
    spacingMax: words(Math.max(...FAILING_SPACING_SECONDS)),
    busyMax: words(Math.max(...OUTAGE_SPACING_SECONDS.busy)),
    unavailableMax: words(Math.max(...OUTAGE_SPACING_SECONDS.unavailable)),
    retryAfterMax: words(RETRY_AFTER_MAX_SECONDS),
    told: words(TELL_AFTER_MS / 1000),
    disabled: words(DISABLE_AFTER_MS / 1000),
    disableFailures: String(DISABLE_AFTER_FAILURES),
    linkOpens: words(PORTAL_LINK_OPENS_MS / 1000),
    session: words(PORTAL_LINK_MINUTES.default * 60),
    testEvents: String(TEST_EVENTS_PER_MINUTE),
    redeliveriesPerSecond: String(REDELIVERIES_PER_SECOND),
    personalFields: personalFields(),
    keepIdsDays: String(KEEP_IDS_DAYS),
    replayDays: String(REPLAY_DAYS),
    missed: en.enable.missed,
    sendAgain: en.sendAgain.button.replace(/…$/, ""),
    limits: limits(),
    catalogue: catalogue(),
    failures: failures(),
    deliveryHeaders: deliveryHeaders(),
    userAgent: HEADERS["User-Agent"],
    secret: SECRET,
    timestamp: header("webhook-timestamp"),
    signature: header("X-Service-Signature"),
    id: header("webhook-id"),
    standard: header("webhook-signature"),
    body: VECTOR_BODY,
  };
}

/** Lists the attempts of the retry schedule with their times, as a table. */
function schedule(): string {
  let elapsed = 0;
  const retries = RETRY_WAITS_SECONDS.map((delay, i) => {
    elapsed += delay;
    return [String(i + 2), duration(delay), duration(elapsed)];
  });
  return table(
    ["Attempt", "Delay after the one before", "Elapsed"],
    [["1", "–", "at once"], ...retries],
  );
}

/** Returns the time from the first attempt to the last one, without jitter and with all of it. */
function lastAttempt(): string {
  const bounds = [RETRY_SCHEDULE_MS, RETRY_SCHEDULE_MS * (1 + RETRY_JITTER)];
  const [unit, unitMs] = Math.max(...bounds) < 4 * DAY_MS ? ["hours", HOUR_MS] : ["days", DAY_MS];
  return `${bounds.map((ms) => Math.round(ms / unitMs)).join(" to ")}\u00a0${unit}`;
}

/** Lists the personal fields of a lead, in a sentence. */
function personalFields(): string {
  const names = Object.keys(SHOWN_PERSON).map((name) => `\`${name}\``);
  return new Intl.ListFormat("en-GB").format(names);
}

/** Lists every limit that clients and endpoints notice, as a table for each topic. */
function limits(): string {
  const topics: Record<string, string[][]> = {
    Requests: [
      [
        "Requests per API key",
        "{{QUOTA_REQUESTS}} in {{QUOTA_WINDOW_SECONDS}} s; more by agreement",
        "429 `rate_limited`",
      ],
      [
        "Failed authentications per IP address",
        "{{AUTH_FAILURES}} in {{AUTH_FAILURE_WINDOW_SECONDS}} s",
        "429 `rate_limited`",
      ],
      [
        "Items of a page",
        `${PAGE_LIMIT.min} to ${PAGE_LIMIT.max}, default ${PAGE_LIMIT.default}`,
        "400 `out_of_range`",
      ],
      [
        "Size of a page",
        `about ${kibibytes(PAGE_MAX_BYTES)}`,
        "The page ends early, with `has_more` true.",
      ],
      ["Request body", kibibytes(BODY_MAX_BYTES), "413 `body_too_large`"],
      ["Time for a request body to arrive", words(BODY_MAX_MS / 1000), "400 `body_too_slow`"],
      ["Duration of a read", words(READ_MAX_MS / 1000), "500 with `Retry-After`"],
      [
        "`Idempotency-Key`",
        `${KEY_LENGTH.min} to ${KEY_LENGTH.max} visible ASCII characters, valid for 24 h`,
        "400 `out_of_range`",
      ],
      ["Validity of a key after its rotation", `up to ${words(KEY_OVERLAP_MAX_SECONDS)}`, ""],
    ],
    Subscriptions: [
      [
        "Subscriptions of a workspace",
        `${SUBSCRIPTIONS_MAX}; up to ${AGREED_SUBSCRIPTIONS_MAX} by agreement`,
        "400 `subscription_limit_reached`",
      ],
      ["URL", `${number(URL_MAX_LENGTH)} characters`, "400 `invalid_url`"],
      ["Description", `${DESCRIPTION_MAX_LENGTH} characters`, "Rejected by the portal"],
      [
        "Custom headers",
        `${HEADERS_MAX}, with values of up to ${number(HEADER_VALUE_MAX_LENGTH)} characters`,
        "Rejected by the portal",
      ],
      [
        "Overlap of secrets",
        `${words(SECRET_OVERLAP_SECONDS.default)} by default, up to ${words(SECRET_OVERLAP_SECONDS.max)}`,
        "",
      ],
    ],
    Deliveries: [
      ["Time for your response", words(POST_TIMEOUT_MS / 1000), "The attempt fails."],
      ["Age of a signature that you should accept", "5\u00a0min", ""],
      [
        "Size of the record in an event",
        kibibytes(RECORD_MAX_BYTES),
        "Accept bodies of up to 2 MB, so that larger records of a later version fit.",
      ],
      ["Requests to an endpoint at a time", `1 to ${CONCURRENCY_MAX}`, ""],
      [
        "Attempts of a delivery",
        `${RETRY_WAITS_SECONDS.length + 1}, over ${lastAttempt()}`,
        "*Failed for good*",
      ],
      ["`Retry-After` of your endpoint", `counts up to ${words(RETRY_AFTER_MAX_SECONDS)}`, ""],
      [
        "Failures before a subscription is disabled",
        `${words(DISABLE_AFTER_MS / 1000)} without a success, at least ${DISABLE_AFTER_FAILURES} attempts`,
        "`disabled_at` is set.",
      ],
      [
        "Deliveries of a subscription that wait or are retried",
        number(PENDING_MAX),
        "The oldest are *Failed for good*, and can be resent.",
      ],
      [
        "Responses to failed attempts that the portal shows",
        `${RESPONSES_PER_DAY} a day for each subscription`,
        "Later ones show their status only.",
      ],
      ["Age of an event that can be resent", `${REPLAY_DAYS} days`, ""],
      [
        "Events kept",
        "{{EVENTS_KEPT_DAYS}} days, at most the newest {{EVENTS_KEPT_MAX}} of a workspace",
        "Older events cannot be resent.",
      ],
      ["Test events of a workspace", `${TEST_EVENTS_PER_MINUTE} a minute`, "429 `rate_limited`"],
      ["Rate of a replay", `${REDELIVERIES_PER_SECOND} per second`, ""],
      [
        "Events that are resent individually",
        `${REDELIVERIES_PER_SECOND} per second for each subscription, up to ${words(RESENDS_AHEAD_MS / 1000)} ahead`,
        "429 `rate_limited`",
      ],
    ],
    Portal: [
      ["Validity of a link", words(PORTAL_LINK_OPENS_MS / 1000), ""],
      [
        "Session",
        `${words(PORTAL_LINK_MINUTES.default * 60)} by default, up to ${words(PORTAL_LINK_MINUTES.max * 60)}`,
        "",
      ],
    ],
  };
  return Object.entries(topics)
    .map(([topic, rows]) => `### ${topic}\n\n${table(["Limit", "Value", "Beyond it"], rows)}`)
    .join("\n\n");
}

/** Lists each event type with its sample. */
function catalogue(): string {
  return Object.values(
    mapEventTypes(
      ({ when, data }, type) =>
        `### \`${type}\`\n\nRecorded ${when}. \`data\` is ${data}.\n\n\`\`\`json\n${JSON.stringify(DELIVERIES[type], null, 2)}\n\`\`\``,
    ),
  ).join("\n\n");
}

/** Returns the headers of the sample delivery. */
function deliveryHeaders(): string {
  const { host, pathname } = new URL(CREATION.url);
  const lines = Object.entries({ Host: host, ...HEADERS, [WEBHOOK_HEADER]: WEBHOOK.id, ...SIGNED });
  return [`POST ${pathname} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`)].join(
    "\n",
  );
}

/** Explains each failure and what to do about it, as a table. */
function failures(): string {
  const rows = Object.entries<(typeof FAILURES)["5xx"]>(FAILURES).map(([result, { en }]) => {
    const name = /^5[23]\d/.test(result) ? `unreachable ${result}` : result;
    return [`\`${name}\``, ...en];
  });
  return table(["Result", "What happened", "What to do"], rows);
}

/** Writes a table in Markdown. */
function table(head: string[], rows: string[][]): string {
  const lines = [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`);
  return lines.join("\n");
}

/** Writes a duration in one unit, such as `2 hours`, without a line break. */
function words(seconds: number): string {
  if (seconds < 60) return `${seconds}\u00a0s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)}\u00a0min`;
  if (seconds < 4 * 86_400) return `${Math.round(seconds / 360) / 10}\u00a0h`;
  return `${seconds / 86_400} days`;
}

/** Writes a duration in its two largest units, such as `2 h 36 min`. */
function duration(seconds: number): string {
  const units = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ] as const;
  const largest = units.findIndex(([size]) => seconds >= size);
  let rest = seconds;
  const parts = units.slice(largest, largest + 2).map(([size, unit]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count === 0 ? "" : `${count}\u00a0${unit}`;
  });
  return parts.join(" ").trim();
}

function number(value: number): string {
  return value.toLocaleString("en");
}

function kibibytes(bytes: number): string {
  return `${bytes / 1024}\u00a0KiB`;
}

/** Writes a request in each language. */
function inLanguages(request: ExampleRequest): string {
  return LANGUAGES.map(({ name, highlight, write }) =>
    alternative(name, highlight, write(request)),
  ).join("\n\n");
}

/** Writes code under a level-4 heading; the page shows one of these at a time (site/pages.ts). */
function alternative(name: string, language: string, code: string): string {
  return `#### ${name}\n\n\`\`\`${language}\n${code.trim()}\n\`\`\``;
}
