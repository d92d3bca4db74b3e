import type { Reason } from "../src/contract/errors.ts";
import { mapEventTypes } from "../src/contract/event-types.ts";
import {
  AGREED_SUBSCRIPTIONS_MAX,
  API_KEYS_MAX,
  BODY_COMMAS_MAX,
  BODY_MAX_BYTES,
  BODY_MAX_MS,
  BODY_NESTING_MAX,
  DESCRIPTION_MAX_LENGTH,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  HEADER_VALUE_MAX_LENGTH,
  HEADERS_MAX,
  KEY_CHANGES_PER_DAY,
  KEY_OVERLAP_MAX_SECONDS,
  PAGE_LIMIT,
  PAGE_MAX_BYTES,
  PENDING_MAX,
  PORTAL_CHANGES_KEPT,
  PORTAL_LASTING_CHANGES_PER_DAY,
  PORTAL_LINK_MINUTES,
  PORTAL_LINK_OPENS_MS,
  POST_TIMEOUT_MS,
  READ_MAX_MS,
  RECORD_MAX_BYTES,
  REDELIVERIES_PER_HOUR,
  REDELIVERY_MAX_AGE_MS,
  REPLAY_MAX_DAYS,
  REPLAYS_MAX,
  RESENDS_PENDING_MAX,
  RESPONSES_PER_DAY,
  RETRIED_DAYS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_WAITS_SECONDS,
  SECRET_OVERLAP_SECONDS,
  SUBSCRIPTIONS_MAX,
  TEST_EVENTS_PER_MINUTE,
  TRIED_FOR_MAX_MS,
  URL_MAX_LENGTH,
  WORKSPACE_EMAILS_PER_DAY,
} from "../src/contract/limits.ts";
import { DAY_MS } from "../src/contract/time.ts";
import { CONCURRENCY_MAX, SLOW_RESPONSE_MS } from "../src/delivery/policy.ts";
import { HEADERS, WEBHOOK_HEADER } from "../src/delivery/post.ts";
import { signatureHeaders } from "../src/endpoints/signature.ts";
import { DELIVERIES, HARD_DELIVERIES, writeUnusually } from "../src/events/samples.ts";
import { FAILURES } from "../src/history/failures.ts";
import { introductionSections } from "../src/http/document/introduction.ts";
import { CREATION, PAGES, SECRET, WEBHOOK } from "../src/http/routes/examples.ts";
import { KEY_LENGTH } from "../src/http/routes/webhooks.ts";
import { EARLIER_SECRETS_MAX } from "../src/subscriptions/rotation.ts";
import { en as texts } from "./portal/texts/en.ts";

/** The limit of `PORTAL_REQUESTS` in wrangler.toml. */
export const PORTAL_REQUESTS = 300;
/** The names of outcomes without a response, as the portal shows them. */
const { answered: _, ...named } = texts.outcomes;
const OUTCOMES: Record<string, string> = named;
/** How long an event can be resent. */
const REPLAY_DAYS = REDELIVERY_MAX_AGE_MS / DAY_MS;

const VECTOR = HARD_DELIVERIES["lead.created"];
const VECTOR_BODY = writeUnusually(VECTOR);
const SIGNED = await signatureHeaders(
  SECRET,
  VECTOR.id,
  VECTOR_BODY,
  Date.parse(VECTOR.created_at),
);

/**
 * The parts of the guides that are written from the code, by name. Each stands in a guide between comments with its
 * name, as `npm run openapi` has written it, so that the guide can be read in the repository.
 */
export const PARTS: Record<string, string> = {
  ...introductionParts(),
  leads: fence("json", JSON.stringify(PAGES.leads, null, 2)),
  schedule: schedule(),
  limits: limits(),
  catalogue: catalogue(),
  failures: failures(),
  headers: fence("http", deliveryHeaders()),
  vector: vector(),
};

/** Returns the sections of the description of the API that guides begin with. */
function introductionParts(): Record<string, string> {
  const names = ["Authentication", "Errors", "Pagination", "Rate limits"];
  const sections = introductionSections().filter(({ title }) => names.includes(title));
  return Object.fromEntries(
    sections.map(({ title, text }) => [title.toLowerCase().replace(" ", "-"), text]),
  );
}

/** Writes the values that a verifier can be tested with. */
function vector(): string {
  const value = (name: string) => SIGNED[name] ?? "";
  const time = value("webhook-timestamp");
  const values = table(
    ["Part", "Value"],
    [
      ["Secret", SECRET],
      ["`t`", time],
      ...["X-Service-Signature", "webhook-id", "webhook-signature"].map((name) => [
        `\`${name}\``,
        value(name),
      ]),
    ].map(([name = "", text]) => [name, `\`${text}\``]),
  );
  const size = new TextEncoder().encode(VECTOR_BODY).length;
  const command = `{ printf '${time}.'; head -c ${size} body.json; } | openssl dgst -sha256 -hmac '${SECRET}'`;
  return `${values}

The body is ${size} bytes long, without a trailing line break. U+2028 and U+2029 in it are invisible. JSON libraries would write it differently, so compute the signature over these bytes:

${fence("json", VECTOR_BODY)}

Save the body as \`body.json\` to compute the signature in a shell:

${fence("sh", command)}`;
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
        invalid("out_of_range"),
      ],
      [
        "Size of a page",
        `about ${kibibytes(PAGE_MAX_BYTES)}`,
        "The page ends early, with `has_more` true.",
      ],
      ["Request body", kibibytes(BODY_MAX_BYTES), invalid("body_too_large", 413)],
      ["Nesting of a request body", `${BODY_NESTING_MAX} levels`, invalid("out_of_range")],
      [
        "Commas between the values of a request body",
        number(BODY_COMMAS_MAX),
        invalid("out_of_range"),
      ],
      ["Time for a request body to arrive", words(BODY_MAX_MS / 1000), invalid("body_too_slow")],
      [
        "Duration of a read",
        words(READ_MAX_MS / 1000),
        "500 with `Retry-After`. Set your own timeout to at least 15 s.",
      ],
      [
        "`Idempotency-Key`",
        `${KEY_LENGTH.min} to ${KEY_LENGTH.max} visible ASCII characters, valid for 24 h`,
        invalid("out_of_range"),
      ],
      ["API keys of a workspace", String(API_KEYS_MAX), "Revoke one first."],
      ["Validity of the old key after a rotation", `up to ${words(KEY_OVERLAP_MAX_SECONDS)}`, ""],
    ],
    Webhooks: [
      [
        "Webhooks of a workspace",
        `${SUBSCRIPTIONS_MAX}; up to ${AGREED_SUBSCRIPTIONS_MAX} by agreement`,
        invalid("subscription_limit_reached"),
      ],
      ["URL", `${number(URL_MAX_LENGTH)} characters`, invalid("invalid_url")],
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
      [
        "Earlier secrets of a webhook that still sign",
        String(EARLIER_SECRETS_MAX),
        "Another rotation is rejected, unless it has no overlap.",
      ],
    ],
    Deliveries: [
      ["Time for your response", words(POST_TIMEOUT_MS / 1000), "The attempt fails."],
      ["Age of a signature that you should accept", "5\u00a0min", ""],
      [
        "Size of the record in an event",
        kibibytes(RECORD_MAX_BYTES),
        "The app cannot record a larger one, so no list and no event has it. Accept bodies of up to 2 MB, so that larger records of a later version fit.",
      ],
      [
        "Requests of a webhook at a time",
        `1 to ${CONCURRENCY_MAX}, depending on your responses; you cannot set the number`,
        `At 100 ms a response, that is at most ${CONCURRENCY_MAX * 10} a second.`,
      ],
      [
        "Response that counts as slow",
        `${words(SLOW_RESPONSE_MS / 1000)} or more`,
        "Fewer requests at a time",
      ],
      [
        "Attempts of a delivery",
        `${RETRY_WAITS_SECONDS.length + 1}, over ${RETRIED_DAYS.min} to ${RETRIED_DAYS.max} days, not counting those that only test a failing server; a failure ${words(TRIED_FOR_MAX_MS / 1000)} or more after the first attempt is the last`,
        "*Failed for good*",
      ],
      [
        "`Retry-After` of your endpoint",
        `up to ${words(RETRY_AFTER_MAX_SECONDS)}`,
        `A longer one counts as ${words(RETRY_AFTER_MAX_SECONDS)}.`,
      ],
      [
        "Failures before a webhook is disabled",
        `${words(DISABLE_AFTER_MS / 1000)} without a success, and at least ${DISABLE_AFTER_FAILURES} failed attempts at two or more events`,
        "`disabled_at` is set.",
      ],
      [
        "Pending deliveries of a webhook",
        `${number(PENDING_MAX)}; replayed ones count only after their first attempt`,
        "The oldest are *Failed for good*, and can be resent.",
      ],
      [
        "Responses to failed attempts that the portal shows",
        `${RESPONSES_PER_DAY} a day for each webhook`,
        "Later ones show their status only.",
      ],
      ["Age of an event that can be resent", `${REPLAY_DAYS} days`, ""],
      [
        "Events kept",
        "{{EVENTS_KEPT_DAYS}} days, at most the newest {{EVENTS_KEPT_MAX}} of a workspace",
        "Older events cannot be resent.",
      ],
      ["Test events of a workspace", `${TEST_EVENTS_PER_MINUTE} a minute`, "429 `rate_limited`"],
      [
        "Pending resends of individual events, for each webhook",
        String(RESENDS_PENDING_MAX),
        "429 `rate_limited`",
      ],
      [
        "Events of a workspace that are resent and replayed",
        `${number(REDELIVERIES_PER_HOUR)} an hour`,
        "429 `rate_limited`; a replay that has begun continues in the next hour.",
      ],
      [
        "Replays of a webhook",
        String(REPLAYS_MAX),
        "A new one replaces the oldest that has ended; if none has, 429 `rate_limited`.",
      ],
      [
        "Duration of a replay",
        `${REPLAY_MAX_DAYS} days`,
        "It stops. Another replay can send the rest.",
      ],
    ],
    Portal: [
      ["Requests of a workspace", `${PORTAL_REQUESTS} a minute`, "429 `rate_limited`"],
      ["Validity of a link", words(PORTAL_LINK_OPENS_MS / 1000), ""],
      [
        "Session",
        `${words(PORTAL_LINK_MINUTES.default * 60)} by default, up to ${words(PORTAL_LINK_MINUTES.max * 60)}`,
        "",
      ],
      [
        "Changes of URLs, secrets and headers",
        `${PORTAL_LASTING_CHANGES_PER_DAY} a day`,
        "429 `rate_limited`; webhooks can still be deleted.",
      ],
      [
        "Other changes in the portal that *History* keeps",
        `the newest ${number(PORTAL_CHANGES_KEPT)}`,
        "Older ones are deleted.",
      ],
      [
        "Changes with one API key that *History* keeps",
        `the first ${KEY_CHANGES_PER_DAY} a day`,
        "One entry says that there were more.",
      ],
      [
        "E-mails to the administrators of a workspace",
        `${WORKSPACE_EMAILS_PER_DAY} a day`,
        "Further ones follow later.",
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
    const [outcome = "", status] = name.split(" ");
    const shown = OUTCOMES[outcome];
    if (!shown) return [`\`${name}\``, ...en];
    const isSame = shown.toLowerCase() === outcome;
    return [`${shown}${status ? ` (${status})` : ""}${isSame ? "" : ` (\`${outcome}\`)`}`, ...en];
  });
  return table(["Result", "What happened", "What to do"], rows);
}

/** Names the error of a request with an invalid value. */
function invalid(reason: Reason, status: 400 | 413 = 400): string {
  return `${status} \`invalid_request\` with the reason \`${reason}\``;
}

/** Writes a table in Markdown. */
function table(head: string[], rows: string[][]): string {
  const lines = [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`);
  return lines.join("\n");
}

/** Writes a duration in one unit, such as `2 h`, without a line break. */
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

/** Writes a block of code. */
function fence(language: string, code: string): string {
  return `\`\`\`${language}\n${code.trim()}\n\`\`\``;
}
