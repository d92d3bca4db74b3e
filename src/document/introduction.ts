import { ApiError, ERRORS, type ErrorCode, REASONS, type Reason } from "../contract/errors.ts";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  PAGE_LIMIT,
  POST_TIMEOUT_MS,
  RETRY_AFTER_MAX_MULTIPLE,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SUBSCRIPTIONS_MAX,
} from "../contract/limits.ts";
import { CODES, REASONS_EXPLAINED } from "./errors.ts";

/** What a client should know before the first request, in Markdown: the description of the API. */
export function introduction(): string {
  const sections = introductionSections().map(({ title, text }) => `## ${title}\n\n${text}`);
  return [ABOUT, ...sections].join("\n\n");
}

/** The sections of the introduction, in Markdown. */
export function introductionSections(): { title: string; text: string }[] {
  return [AUTHENTICATION, errors(), PAGINATION, QUOTA, VERSIONING, webhooks()].map((section) => {
    const [heading = "", ...lines] = section.split("\n");
    return { title: heading.replace("## ", ""), text: lines.join("\n").trim() };
  });
}

/** What the API is for, in Markdown. */
export const ABOUT = `Read a workspace's automations, leads and runs, pause or activate automations, and subscribe to events that are pushed to your servers, signed.

Requests and answers are JSON. All times are ISO 8601, UTC, with the suffix \`Z\`. Identifiers are opaque strings: store them and send them back unchanged. Unknown query parameters are ignored.`;

const AUTHENTICATION = `## Authentication

Send an API key of your workspace with every request:

\`\`\`http
Authorization: Bearer key_live_…
\`\`\`

Keys are created in the settings of the workspace, in the section API. A key belongs to one workspace and selects it: no request names a workspace. It gives access to all of that workspace, so keep it on your servers.

- A key that is missing, malformed, unknown or revoked answers 401 \`invalid_api_key\`, with \`WWW-Authenticate: Bearer\`; the four look the same. A revoked key is refused at once.
- A good key of a workspace that has no access to the service answers 403 \`workspace_access_denied\`, at the expense of its quota; it stays 403 when nothing is left of that.
- Too many failures from one address answer 429, apart from any key's quota.`;

function errors(): string {
  const example = new ApiError("invalid_request", {
    parameter: "status",
    reason: "unknown_value",
    allowed: ["active", "paused"],
  });
  return `## Errors

Every error has the same body:

\`\`\`json
${JSON.stringify(example.toBody(), null, 2)}
\`\`\`

- \`code\` is what to branch on. The list is closed; several codes share a status.
- \`message\` says the same to people, in French. It may change.
- \`details\` helps to mend the request: the faulty \`parameter\`, the \`reason\`, and what would be right: the \`allowed\` values, or the bounds \`min\` and \`max\`.

Every answer, good or bad, carries \`X-Request-Id\`. Quote it when you write to us: it finds the request in our logs.

### Codes

${table(
  ["Code", "Status", "When", "What to do", "Message"],
  Object.entries(ERRORS).map(([code, { statuses, message }]) => {
    const { when, todo } = CODES[code as ErrorCode];
    return [`\`${code}\``, statuses.join(", "), when, todo, message];
  }),
)}

### Reasons

\`invalid_request\` says in \`details.reason\` what is wrong. New reasons are announced: treat one that you do not know as the code alone.

${table(
  ["Reason", "Meaning", "Message"],
  Object.entries(REASONS).map(([reason, message]) => [
    `\`${reason}\``,
    REASONS_EXPLAINED[reason as Reason],
    message,
  ]),
)}`;
}

const PAGINATION = `## Pagination

Lists are newest first and come in pages:

\`\`\`json
{ "data": [], "has_more": true, "next_cursor": "…" }
\`\`\`

- \`limit\`: ${PAGE_LIMIT.min} to ${PAGE_LIMIT.max} items, ${PAGE_LIMIT.default} when left out. Anything else is refused, never corrected.
- \`cursor\`: the \`next_cursor\` of the page before. Absent, empty or the word \`null\`, it asks for the first page.

Go on while \`has_more\` is true; \`next_cursor\` is null on the last page. Nothing is skipped or shown twice while items are added. A cursor is opaque and belongs to its list: any other is refused with the reason \`unreadable\`.`;

const QUOTA = `## Quota

Each key may make a number of requests per window. Every answer says where it stands:

${table(
  ["Header", "Meaning"],
  [
    ["`X-RateLimit-Limit`", "Requests allowed per window"],
    ["`X-RateLimit-Remaining`", "Requests left in this one"],
    ["`X-RateLimit-Reset`", "Seconds until the next one; not a timestamp"],
  ],
)}

Beyond the quota the answer is 429 \`rate_limited\`: wait for the seconds in \`Retry-After\`, which \`details.retry_after_seconds\` repeats, and send the request again.`;

const VERSIONING = `## Versioning

The path carries the version: \`/v1\`. Every change is announced in advance; none is silent.

Be ready for what may grow within a version: \`provider\` is a free string, and automations of new channels get new types. A route that this deployment does not serve yet answers 404 \`route_not_found\`, as an unknown path does.`;

function webhooks(): string {
  return `## Webhooks

Subscribe with \`POST /v1/webhooks\`: a URL of yours (HTTPS, a public host, no credentials) and the kinds of events to send there. The answer holds the \`secret\` that its deliveries are signed with; no later answer does. A workspace has at most ${SUBSCRIPTIONS_MAX} subscriptions, unless agreed otherwise.

### Receiving

Each event is a \`POST\` with a JSON body. Before you act on one:

1. **Check its age.** \`X-Service-Signature\` is \`t=<unix seconds>,v1=<hex>\`. Refuse it when \`t\` is more than 5 minutes from your clock, either way.
2. **Check its signature.** Compute the HMAC-SHA256 of \`{t}.{raw body}\`, keyed with the whole secret, over the bytes as they came. Compare it with \`v1\` in constant time.
3. **Check that it is new.** The same event can come again: remember each \`id\`.
4. **Answer** any 2xx within ${POST_TIMEOUT_MS / 1000} seconds, and do the work after that. The body of your answer is ignored; a redirect is a failure.

The headers of [Standard Webhooks](https://www.standardwebhooks.com) come along, so its libraries can do the first two.

### Retries

Anything else than a 2xx is tried again, with the same \`id\` and the same bytes, signed anew. The waits are ${ladder()}, each up to ${RETRY_JITTER * 100} % shorter or longer: ${RETRY_WAITS_SECONDS.length + 1} attempts in all. \`Retry-After\` on a 429 or 503 lengthens a wait up to ${RETRY_AFTER_MAX_MULTIPLE} times.

### Disabling

A subscription is disabled when it has failed without a success for ${hours(DISABLE_AFTER_MS / 1000)} and at least ${DISABLE_AFTER_FAILURES} times. What it was still owed is cancelled, and the administrators of the workspace are told by e-mail. No event announces it: look at \`disabled_at\` in \`GET /v1/webhooks\`.`;
}

/** The waits between attempts, for people. */
function ladder(): string {
  const waits = RETRY_WAITS_SECONDS.map((seconds) => {
    if (seconds < 60) return `${seconds} s`;
    return seconds < 3600 ? `${seconds / 60} min` : hours(seconds);
  });
  return `${waits.slice(0, -1).join(", ")} and ${waits.at(-1)}`;
}

function hours(seconds: number): string {
  return `${seconds / 3600} h`;
}

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
