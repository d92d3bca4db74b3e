import { ApiError, ERRORS, REASONS, type Reason } from "../../contract/errors.ts";
import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  PAGE_LIMIT,
  POST_TIMEOUT_MS,
  READ_MAX_MS,
  RETRY_AFTER_MAX_MULTIPLE,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SUBSCRIPTIONS_MAX,
} from "../../contract/limits.ts";
import { REASONS_EXPLAINED } from "./errors.ts";

/** The description of the API, in Markdown: what to know before the first request. */
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
export const ABOUT = `Read a workspace's automations, leads and runs, pause or activate automations, and subscribe to signed events that are posted to your servers.

Requests and responses are JSON. All times are ISO 8601, UTC, with the suffix \`Z\`. Ids are opaque strings: store them and send them back unchanged. Unknown query parameters are ignored. Of a property that a body repeats, the last value counts. There are no \`ETag\`s, and \`If-Match\` is ignored. Paths have no trailing slash: with one, they give 404 \`route_not_found\`.`;

const AUTHENTICATION = `## Authentication

Send an API key of your workspace with every request:

\`\`\`http
Authorization: Bearer key_live_…
\`\`\`

Keys are created in the workspace settings, under API. A key belongs to one workspace and selects it: requests never name a workspace. A key gives access to the whole workspace, so keep it on your servers. A web page would reveal it to everyone who opens it, so browsers cannot read responses of \`/v1\` from other origins.

- A key that is missing, malformed, unknown or revoked gives 401 \`invalid_api_key\` with \`WWW-Authenticate: Bearer\`; the response does not say which. A revoked key stops working immediately.
- A valid key of a workspace without access to the service gives 403 \`workspace_access_denied\`. Such requests count against the quota, but the answer stays 403 when it is used up.
- Too many failures from one address give 429, independently of any key's quota.`;

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

- Branch on \`code\`, not on the status, which several codes share. The list of codes is closed.
- \`message\` is for people, in French. It may change.
- \`details\` helps to fix the request: the invalid \`parameter\`, the \`reason\`, and the \`allowed\` values, the bounds \`min\` and \`max\`, or the \`status\` that an automation cannot be controlled in.

Every response has an \`X-Request-Id\`. Quote it when you contact us, so that we can find the request in our logs.

### Codes

${table(
  ["Code", "Status", "When", "What to do", "Message"],
  Object.entries(ERRORS).map(([code, { statuses, message, when, todo }]) => [
    `\`${code}\``,
    statuses.join(", "),
    when,
    todo,
    message,
  ]),
)}

### Reasons

With \`invalid_request\`, \`details.reason\` says what is wrong. New reasons are announced; treat an unknown one as if there were none.

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

Lists are paginated, newest first:

\`\`\`json
{ "data": [], "has_more": true, "next_cursor": "…" }
\`\`\`

- \`limit\`: ${PAGE_LIMIT.min} to ${PAGE_LIMIT.max} items; ${PAGE_LIMIT.default} by default. Any other value is rejected, never corrected. A page may have fewer, with \`has_more\` true.
- \`cursor\`: the \`next_cursor\` of the previous page. If it is absent, empty or the word \`null\`, you get the first page.

Continue while \`has_more\` is true; \`next_cursor\` is null on the last page. No item is skipped or repeated when others are added in the meantime. A cursor is opaque and only valid for its own list; otherwise the reason is \`unreadable\`.`;

const QUOTA = `## Quota

Each key may make a fixed number of requests per window. Every response shows the current state:

${table(
  ["Header", "Meaning"],
  [
    ["`X-RateLimit-Limit`", "Requests allowed per window"],
    ["`X-RateLimit-Remaining`", "Requests left in this window"],
    ["`X-RateLimit-Reset`", "Seconds until the window resets; not a timestamp"],
    ["`RateLimit-Policy`, `RateLimit`", "The same as the IETF's draft writes it"],
  ],
)}

Beyond the quota you get 429 \`rate_limited\`. Wait for the number of seconds in \`Retry-After\` (also in \`details.retry_after_seconds\`), then retry. A 500 that will probably pass has \`Retry-After\`, too; a read that takes longer than ${READ_MAX_MS / 1000} s ends so.`;

const VERSIONING = `## Versioning

The version is in the path: \`/v1\`. Every change is announced in advance.

Be prepared for additions within a version: \`provider\` is a free string, and new channels add automation types. Let a generated client pass values it does not know: \`enumUnknownDefaultCase=true\` for openapi-generator; for validators made with zod, \`AutomationType.or(z.string())\`. A route that this deployment does not serve yet gives 404 \`route_not_found\`, like an unknown path.`;

function webhooks(): string {
  return `## Webhooks

Subscribe with \`POST /v1/webhooks\`, giving your URL (HTTPS, a public host, no credentials) and the kinds of events to post to it. The response contains the \`secret\` that signs its deliveries; it is not shown again. A workspace has at most ${SUBSCRIPTIONS_MAX} subscriptions, unless agreed otherwise.

### Receiving

Each event is a \`POST\` with a JSON body. Before you process one:

1. **Check its age.** \`X-Service-Signature\` is \`t=<unix seconds>,v1=<hex>\`. Reject it if \`t\` differs from your clock by more than 5 minutes, in either direction.
2. **Check its signature.** Compute the HMAC-SHA256 of \`{t}.{raw body}\`, keyed with the whole secret, over the exact bytes received. Compare it with \`v1\` in constant time. While a secret is being rotated, the header has several \`v1\`: accept the delivery if one of them is valid.
3. **Check that it is new.** The same event can be delivered more than once: store each \`id\` with the work it triggers, not before it.
4. **Answer** with any 2xx within ${POST_TIMEOUT_MS / 1000} seconds. If the work takes longer, store the event and do it afterwards. The body of your answer is ignored; redirects count as failures.

Each delivery also has the [Standard Webhooks](https://www.standardwebhooks.com) headers, whose libraries can do the first two checks.

### Retries

Anything other than a 2xx within ${POST_TIMEOUT_MS / 1000} seconds, a timeout included, is retried with the same \`id\` and the same bytes, signed afresh. The waits are ${ladder()}, each lengthened by up to ${RETRY_JITTER * 100}%: ${RETRY_WAITS_SECONDS.length + 1} attempts in all. \`Retry-After\` on a 429 or 503 lengthens a wait, to at most ${RETRY_AFTER_MAX_MULTIPLE} times its length.

### Disabling

A subscription is disabled after failing without a success for ${hours(DISABLE_AFTER_MS / 1000)} and at least ${DISABLE_AFTER_FAILURES} times. Its pending deliveries are cancelled, and the workspace's administrators are notified by e-mail. No event announces this: check \`disabled_at\` in \`GET /v1/webhooks\`.`;
}

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
