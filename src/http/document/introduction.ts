import { ApiError, ERRORS, type ErrorCode, REASONS, type Reason } from "../../contract/errors.ts";
import {
  PAGE_LIMIT,
  POST_TIMEOUT_MS,
  READ_MAX_MS,
  RETRIED_DAYS,
  RETRY_WAITS_SECONDS,
  SECRET_OVERLAP_SECONDS,
  SUBSCRIPTIONS_MAX,
} from "../../contract/limits.ts";
import { REASONS_EXPLAINED, RETRY } from "./errors.ts";

type ErrorEntry = (typeof ERRORS)[ErrorCode];

/** The description of the API, in Markdown: what to know before the first request. */
export function introduction(): string {
  const sections = introductionSections().map(({ title, text }) => `## ${title}\n\n${text}`);
  return [ABOUT, ...sections].join("\n\n");
}

/** The sections of the introduction, in Markdown. Some guides of the docs begin with one of them. */
export function introductionSections(): { title: string; text: string }[] {
  return [
    { title: "Authentication", text: AUTHENTICATION },
    { title: "Errors", text: errors() },
    { title: "Pagination", text: PAGINATION },
    { title: "Rate limits", text: RATE_LIMITS },
    { title: "Versioning", text: VERSIONING },
    { title: "Webhooks", text: WEBHOOKS },
  ];
}

/** The purpose of the API, in Markdown. */
export const ABOUT = `Read a workspace's automations, leads and runs, pause or activate automations, and subscribe to signed events that are sent to your server.

- Requests and responses are JSON in UTF-8. If a body repeats a property, the last value is used.
- Times are ISO 8601 in UTC, with milliseconds and the suffix \`Z\`.
- Ids are opaque strings. Store them and send them back unchanged.
- Unknown query parameters are ignored.
- Paths have no trailing slash. With one, they give 404 \`route_not_found\`.
- There are no \`ETag\`s, and \`If-Match\` is ignored.`;

const AUTHENTICATION = `Send an API key of your workspace with every request:

\`\`\`http
Authorization: Bearer key_live_…
\`\`\`

Create keys in the workspace settings of the app, under API. A key belongs to one workspace and selects it, so requests never name a workspace.

- A key that is missing, malformed, unknown, revoked or expired gives 401 \`invalid_api_key\` with \`WWW-Authenticate: Bearer\`. The response does not tell which. A revoked key stops working immediately.
- A valid key of a workspace without access to the API gives 403 \`workspace_access_denied\`. Such requests count against the key's rate limit, but beyond it they still get 403, not 429.
- After too many 401s from one IP address, its requests without a valid key get 429 \`rate_limited\` instead. A valid key still works from there.`;

function errors(): string {
  const example = new ApiError("invalid_request", {
    parameter: "status",
    reason: "unknown_value",
    allowed: ["active", "paused"],
  });
  return `Every error of the API has the same body:

\`\`\`json
${JSON.stringify(example.toBody(), null, 2)}
\`\`\`

- **Handle errors by \`code\`**, because several codes share a status. No new codes are added within a version.
- \`message\` is in French, because the app shows it to its users. You may display it, but do not compare it, because it may change.
- \`details\` helps you fix the request, and may be empty: \`{}\`. With \`invalid_request\`, it has the \`reason\`, the invalid \`parameter\`, and the \`allowed\` values or the bounds \`min\` and \`max\`, as far as they apply. On a 422, \`details.status\` is the automation's status; on a 429, \`details.retry_after_seconds\` is the time to wait.
- The \`Link\` header with \`rel="help"\` leads to the explanation of the code.

Every response of the API has an \`X-Request-Id\`. Quote it when you contact us, so that we can find the request in our logs.

### Codes

${table(
  ["Code", "Status", "Retry?"],
  Object.entries(ERRORS).map(([code, { statuses }]) => [
    `\`${code}\``,
    statuses.join(", "),
    RETRY[code as ErrorCode],
  ]),
)}

${Object.entries(ERRORS).map(describeCode).join("\n\n")}

### Reasons

With \`invalid_request\`, \`details.reason\` names the problem. New reasons are announced in the changelog. Treat an unknown reason as if there were none.

${table(
  ["Reason", "Meaning", "Message (in French)"],
  Object.entries(REASONS).map(([reason, message]) => [
    `\`${reason}\``,
    REASONS_EXPLAINED[reason as Reason],
    message,
  ]),
)}`;
}

/** Describes an error code and what to do about it, under a heading that the `Link` header names. */
function describeCode([code, { when, todo, message }]: [string, ErrorEntry]): string {
  return `### \`${code}\`

**When:** ${when}

**What to do:** ${todo}

**Message:** ${message}`;
}

const PAGINATION = `Lists are paginated, newest first:

\`\`\`json
{ "data": [], "has_more": true, "next_cursor": "…" }
\`\`\`

- \`limit\` is the maximum number of items: ${PAGE_LIMIT.min} to ${PAGE_LIMIT.max}, ${PAGE_LIMIT.default} by default. Values outside this range give 400; they are not clamped.
- \`cursor\` is the \`next_cursor\` of the previous page. If it is absent, empty or the word \`null\`, you get the first page.

Continue while \`has_more\` is true; \`next_cursor\` is null on the last page. A page may have fewer items than \`limit\` although \`has_more\` is true, for instance when its items are large.

If items are added or removed while you paginate, you still get each of the others once. A cursor is opaque, does not expire, and is only valid for its own list, with any key of the workspace. Any other cursor gives 400 \`invalid_request\` with the reason \`unreadable\`.`;

const RATE_LIMITS = `Every key may make a fixed number of requests per window. Every response to a request with a valid key shows the state of its window:

${table(
  ["Header", "Meaning"],
  [
    ["`X-RateLimit-Limit`", "Requests allowed per window"],
    ["`X-RateLimit-Remaining`", "Requests left in this window"],
    ["`X-RateLimit-Reset`", "Seconds until the window resets; not a timestamp"],
    ["`RateLimit-Policy`, `RateLimit`", "The same values in the format of IETF draft 11"],
  ],
)}

Beyond the limit, you get 429 \`rate_limited\`. Wait for the number of seconds in \`Retry-After\` (also in \`details.retry_after_seconds\`), then retry. A 500 that is probably temporary also has \`Retry-After\`, for instance after a read that exceeded ${READ_MAX_MS / 1000} s.`;

const VERSIONING = `The version is in the path: \`/v1\`. A breaking change gets a new path prefix, and the old one is served for at least 6 months from then on. Additions are announced in the changelog. Be prepared for new fields, and for new values of open enumerations. A route that this deployment does not serve yet gives 404 \`route_not_found\`, like an unknown path.`;

const WEBHOOKS = `Subscribe with \`POST /v1/webhooks\`, giving your URL (HTTPS, a public host, no credentials) and the event types to send to it. The response contains the \`secret\` that signs the deliveries; it is not shown again. A workspace has at most ${SUBSCRIPTIONS_MAX} webhooks, unless agreed otherwise.

Each event is a \`POST\` with a JSON body. Before you process one:

1. **Check its age.** Reject it if \`t\` in \`X-Service-Signature\` differs from your clock by more than 5 min.
2. **Check its signature.** \`v1\` is the HMAC-SHA256 of \`{t}.{raw body}\`, in hex, keyed with the whole secret. Compare in constant time, and accept the delivery if one of several \`v1\` is valid.
3. **Deduplicate by \`id\`.** The same event can be delivered more than once.
4. **Respond** with any 2xx within ${POST_TIMEOUT_MS / 1000} s, even to events that you do not want.

Anything else is retried for ${RETRIED_DAYS.min} to ${RETRIED_DAYS.max} days: ${RETRY_WAITS_SECONDS.length + 1} attempts, not counting those that only test a failing server. After prolonged failures, the webhook is disabled. Check \`disabled_at\` in \`GET /v1/webhooks\`.

Deliveries may arrive in any order. Of two states of an automation, keep the one with the later \`updated_at\`. You can rotate a secret in the portal. For ${SECRET_OVERLAP_SECONDS.default / 3600} h, or as long as you choose, both the earlier and the new secret sign. The guides have the details: [verify signatures](/docs/guides/signatures), [process events](/docs/guides/processing), and [retries](/docs/guides/retries).`;

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
