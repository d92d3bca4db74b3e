import type { ErrorCode, Reason } from "../../../src/contract/errors.ts";
import { ofEachKind } from "../../../src/contract/event-types.ts";
import {
  DISABLE_AFTER_MS,
  POST_TIMEOUT_MS,
  REDELIVERY_MAX_AGE_MS,
  RETRY_AFTER_MAX_MULTIPLE,
} from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import { type Ended, explainFailure } from "../../../src/history/failures.ts";
import { counter } from "./count.ts";

const count = counter("en");

// The errors that the portal's API answers with.
const errors = {
  invalid_request: "The request is not valid.",
  invalid_api_key: "The session is no longer valid.",
  workspace_access_denied: "The workspace has no access to this service.",
  webhook_not_found: "This subscription does not exist in the workspace.",
  route_not_found: "This deployment does not offer that.",
  rate_limited: "Too many requests.",
  internal_error: "Something failed on our side. Try again in a moment.",
} satisfies Partial<Record<ErrorCode, string>>;

const reasons: Record<Reason, string> = {
  required: "Enter a value.",
  invalid_type: "This value is not valid.",
  unknown_value: "This value is not one of the choices.",
  out_of_range: "This value is outside the allowed range.",
  unreadable: "This page of the list can no longer be read.",
  unknown_property: "The request contains an unknown property.",
  invalid_url: "This is not a valid URL.",
  https_required: "The URL must start with https://.",
  credentials_not_allowed: "The URL must not contain a user name or password.",
  private_address: "The URL must not point to a private or local address.",
  unresolvable_host: "The host name of this URL cannot be found.",
  invalid_json: "The request cannot be read.",
  body_too_large: "The request is too large.",
  body_too_slow: "The request took too long to arrive. Try again.",
  unsupported_media_type: "The request is not JSON.",
  subscription_limit_reached: "The workspace has reached its maximum number of subscriptions.",
  idempotency_key_reused: "This idempotency key has been used for another request.",
};

/** Every text of the portal in English; the type of all languages. */
export const en = {
  errors,
  reasons,
  kinds: ofEachKind(({ name }) => name),
  languageName: "English",
  skip: "Skip to the content",
  product: "API and webhooks",
  sections: "Sections",
  subscriptions: "Subscriptions",
  usage: "Usage",
  docs: "Docs",
  timeZone: (zone: string) => `Times are in the time zone ${zone}; the days of a chart are in UTC.`,
  sessionUntil: (time: string) => `This session ends on ${time}`,
  loading: "Loading…",
  never: "Never",
  none: "None",
  orMore: (n: string) => `${n} or more`,
  at: (day: string, time: string) => `${day}, ${time}`,
  retry: "Try again",
  stop: "Stop",
  goOn: "Continue",
  newer: "Newer",
  older: "Older",
  cancel: "Cancel",
  close: "Close",
  copy: "Copy",
  copied: "Copied",
  copyFailed: "Select the text and copy it",
  asTable: "Show as a table",
  milliseconds: (n: number) => `${new Intl.NumberFormat("en").format(n)} ms`,

  session: {
    missing: {
      title: "Open the portal from its link",
      text: "This page opens from a personal link. Ask for one in your product’s settings.",
    },
    outdated: {
      title: "This link has expired",
      text: "A link to the portal must be opened within two minutes. Ask for a new link in your product’s settings.",
    },
    ended: {
      title: "Your session has ended",
      text: "The portal stays open for a limited time. Ask for a new link in your product’s settings.",
    },
    withdrawn: {
      title: "This workspace has no access",
      text: "This workspace no longer has access to the API and its webhooks. Contact the person who manages your subscription to the product, then try again.",
    },
  },

  arrival: {
    title: (name: string) => `Open ${name}?`,
    text: (name: string, current: string) =>
      `The link that you followed opens ${name}. This tab shows ${current}.`,
    accept: (name: string) => `Open ${name}`,
    stay: (current: string) => `Stay in ${current}`,
    expired: {
      title: "The link has expired",
      text: "A link to the portal must be opened within two minutes. Ask for a new link in your product’s settings.",
    },
    withdrawn: {
      title: "The link’s workspace has no access",
      text: "Its workspace no longer has access to the API and its webhooks.",
    },
    still: (current: string) => `This tab still shows ${current}.`,
  },

  faults: {
    offline: "The server cannot be reached. Check your connection.",
    rateLimited: (seconds: number) =>
      `Too many requests. The page tries again in ${count(seconds, "second", "seconds")}.`,
    waitBefore: (seconds: number) =>
      `Too many requests. Try again in ${count(seconds, "second", "seconds")}.`,
    stale: "What you see may be out of date.",
    reference: (id: string) => `Reference: ${id}`,
    notFound: "Page not found",
    notFoundText: "It was deleted, or the address is wrong.",
    toSubscriptions: "See the subscriptions",
  },

  untried: "Waiting for the first event",
  states: {
    healthy: "Healthy",
    backlog: "Catching up",
    slow: "Slow",
    rejecting: "Rejecting some",
    failing: "Failing",
    disabled: "Disabled",
  },
  deliveryStates: {
    pending: "Waiting",
    delivered: "Delivered",
    exhausted: "Failed",
    cancelled: "Cancelled",
    test: "Test",
  },
  /** The state of a delivery that waits because it has failed. */
  retrying: "Retrying",
  /** In the legend of a chart. */
  chartOutcomes: {
    delivered: "Delivered",
    failed: "Failed, will be retried",
    exhausted: "Failed for good",
  },
  explain: (attempt: Ended) => explainFailure(attempt, "en"),
  outcomes: {
    answered: (status: number) => `Answered ${status}`,
    timed_out: "No answer in time",
    unreachable: "Unreachable",
    refused: "Not sent: address refused",
    unreadable: "Not sent: the lead is damaged",
  },

  list: {
    lead: "Events of this workspace are sent to these servers as they happen.",
    full: (max: number) =>
      `This workspace has reached its limit of ${max} subscriptions. Delete one to add another.`,
    emptyTitle: "No subscriptions yet",
    emptyText:
      "Subscribe a URL of your server, and every new lead, run or automation change is posted to it, signed, within seconds.",
    pending: (n: string) => `Waiting: ${n}`,
    lastAttempt: "Last attempt:",
    failingSince: (time: string) => `Failing since ${time}`,
    disabledAt: (time: string) => `Disabled ${time}`,
  },

  subscription: {
    id: "Id",
    created: "Created",
    createdBy: "Created with",
    portal: "The portal",
    events: "Events",
    pending: "Waiting",
    nextAttempt: "Next attempt",
    lastAttempt: "Last attempt",
    asap: "As soon as possible",
    failing: (failures: number, since: string) =>
      `${count(failures, "failed attempt", "failed attempts in a row")} since ${since}. Deliveries are retried with growing waits; without a success for ${DISABLE_AFTER_MS / HOUR_MS} hours the subscription is disabled.`,
    slow: `Your server is slow to answer, so deliveries go out one by one; an answer after ${POST_TIMEOUT_MS / 1000} seconds is a failure. It should answer first and process events afterwards. A few quick answers end this.`,
    rejecting: (kind: string, since: string) =>
      `Your server has accepted no event of the kind “${kind}” since ${since}, although it accepts others.`,
    backlog:
      "Deliveries are due, and are being sent at the pace that your server can keep up with.",
    headers: "Own headers",
    disabled: (time: string) => `Disabled ${time}. Nothing is sent until you enable it.`,
    disabledFailing: (time: string) =>
      `Disabled ${time}, after failing for too long. Nothing is sent until you enable it.`,
    byDay: "Delivery attempts by day",
    day: "Day",
  },

  deliveries: {
    title: "Deliveries",
    state: "State",
    kind: "Event",
    status: "Last answer",
    noAnswer: "No answer",
    since: "From",
    until: "To",
    find: "Find",
    findHint: "evt_… or lea_…",
    all: "All",
    allStatuses: "All",
    recorded: "Recorded",
    attempts: "Attempts",
    lastAnswer: "Last answer",
    next: "next attempt",
    pages: "Pages of deliveries",
    empty: "No deliveries yet",
    emptyText:
      "The next event of this workspace shows up here. Send a test event to check your server now.",
    noneAtAll: "No deliveries match these filters",
    noneOlder: "No older deliveries match these filters",
    noneSoFar: "No match so far",
    lookOn: "Look for older ones",
    untilFirst: "“To” is not later than “From”.",
    looking: "Looking through older deliveries.",
    lookedBackTo: (time: string) => `Looked back to ${time}.`,
    findFault: "Enter the id of an event (evt_…) or of a lead (lea_…).",
    showAll: "Show all deliveries",
    sendAgain: "Send again",
    sendAgainOf: (kind: string, time: string) => `Send again: ${kind}, ${time}`,
    sendNow: "Send now",
    sendNowOf: (kind: string, time: string) => `Send now: ${kind}, ${time}`,
  },

  delivery: {
    back: "All deliveries",
    id: "Event",
    url: "Present URL",
    recorded: "Recorded",
    settled: "Settled",
    noAttempt: "No attempts.",
    body: "Body",
    pretty: "Formatted",
    exact: "Exact",
    exactHint: "These are the bytes that the signature covers.",
    kept: (days: number) => `Events are kept for ${count(days, "day", "days")}.`,
  },

  exchange: {
    request: "Headers sent",
    curl: "Copy as curl",
    curlHint:
      "The command posts to the present URL, with the signature of this attempt: a receiver refuses it after five minutes. Your own headers are not part of it.",
    retryAfter: `With a 429 or 503, Retry-After lengthens the wait, to at most ${RETRY_AFTER_MAX_MULTIPLE} times its length.`,
    response: "What your server answered:",
    cut: "The beginning of what your server answered:",
    empty: "The response had no body.",
    location: "Redirects to",
  },

  follow: {
    button: "Use this URL…",
    title: "Post to this URL from now on?",
    text: "All events of the subscription go there, waiting ones too:",
    hint: "Is this your receiver? A redirect often leads to a login page.",
    submit: "Use this URL",
    result: "The subscription now posts to this URL. Waiting deliveries go there, too.",
  },

  sendAgain: {
    one: "It will be sent within a minute.",
    none: "It is already on its way.",
    faults: {
      webhookId: "Nothing is sent while the subscription is disabled.",
      eventIds: "It cannot be sent: the subscription does not include this kind of event.",
    },
    button: "Send failed again…",
    title: "Send failed deliveries again",
    text: "They keep their ids and content, and are sent oldest first, ten per second.",
    which: "Which ones",
    exhausted: "Failed: all attempts were used up",
    cancelled: "Cancelled: the subscription was disabled before they were sent",
    missed: "Missed: recorded while the subscription was disabled",
    retrying: "Retrying: waiting after a failed attempt",
    submit: "Send again",
    result: (n: number) =>
      n === 0
        ? "There is nothing to send again."
        : `${count(n, "delivery", "deliveries")} will be sent again.`,
    scheduled: (n: string, time: string) => `Will be sent: ${n}. Looked through until ${time}.`,
  },

  since: {
    label: "Since",
    first: (time: string) => `The first not delivered (${time})`,
    hour: "One hour ago",
    day: "24 hours ago",
    week: "7 days ago",
    other: "Another time…",
    time: "Time",
    hint: `At most ${REDELIVERY_MAX_AGE_MS / DAY_MS} days ago.`,
    required: `Choose a time in the last ${REDELIVERY_MAX_AGE_MS / DAY_MS} days.`,
  },

  test: {
    button: "Send a test event…",
    title: "Send a test event",
    text: "One sample event is posted now, signed like any other, with the header X-Service-Test: true. The deliveries show what was sent and answered.",
    submit: "Send",
    again: "Send another",
    details: "Show what was sent and answered",
    once: "A test event is posted once, whatever the answer, and is not counted.",
    sending: "Waiting for the server to answer…",
    accepted: "Your server accepted it.",
  },

  catalogue: {
    title: "Events",
    lead: "What a subscription can receive. Each event is posted as JSON, signed.",
    docs: "How to receive and verify them",
    when: ofEachKind(({ when, data }) => `Posted ${when}. “data” is ${data}.`),
    example: "Example",
  },

  edit: {
    button: "Edit…",
    title: "Edit the subscription",
    description: "Description",
    descriptionHint: "Only shown here.",
    text: "Waiting deliveries go to the new URL. A change of events applies from now on.",
    submit: "Save",
    result: "The changes are saved.",
  },

  headers: {
    button: "Headers…",
    title: "Headers of your own",
    text: "Each post carries them, for instance a token for a gateway. They replace the present ones, and their values are not shown again.",
    label: "Headers",
    hint: (max: number) =>
      `One per line, such as “Authorization: Bearer token”; at most ${max}. Empty: none.`,
    refused:
      "Not saved: each line needs a name, a colon and a value of visible ASCII characters, and each name occurs once. Names such as Host, Content-Type, User-Agent or Webhook-Id are set by the service.",
    submit: "Save",
    result: "The headers are saved.",
  },

  disable: {
    button: "Disable…",
    title: "Disable this subscription?",
    text: "Nothing is sent until you enable it. Events that happen meanwhile are kept, and can be sent then.",
    submit: "Disable",
    result: "The subscription is disabled.",
  },

  enable: {
    button: "Enable…",
    title: "Enable the subscription",
    text: "Deliveries start again with the next event.",
    missed: "Also send what was missed",
    submit: "Enable",
    result: (n: number) =>
      n === 0
        ? "The subscription is enabled."
        : `The subscription is enabled; ${count(n, "missed event", "missed events")} will be sent.`,
  },

  secret: {
    button: "New secret…",
    title: "Create a new secret",
    text: "Deliveries are signed with the new secret immediately. The current one can keep signing alongside it for a while, so that you can switch your server without losing an event.",
    overlap: "How long the current secret also signs",
    overlaps: { now: "Not at all", hour: "For 1 hour", day: "For 24 hours", week: "For 7 days" },
    submit: "Create a new secret",
    label: "Signing secret",
    once: "Copy this secret now: it is not shown again. Your server needs it to check the signature of each delivery.",
    howTo: "How to check signatures",
    tooMany:
      "Too many earlier secrets are still valid. Choose “Not at all”, or wait until one has expired.",
    ended: "The previous secret no longer signs.",
    stored: "I have stored it",
    leave: "The secret is not shown again. Have you stored it?",
  },

  endOverlap: {
    until: (time: string) => `Deliveries are also signed with earlier secrets, until ${time}.`,
    button: "End this now…",
    title: "Sign with the current secret alone?",
    text: "A server that still has an earlier secret will refuse every delivery. This cannot be undone.",
    submit: "End this now",
    result: "Only the current secret signs from now on.",
  },

  remove: {
    button: "Delete…",
    title: "Delete this subscription?",
    text: (url: string) =>
      `This subscription sends nothing more to ${url}. Its delivery history is deleted too. This cannot be undone.`,
    pending: (n: string) => `Deliveries that are waiting will be cancelled: ${n}.`,
    submit: "Delete",
    result: "The subscription is deleted.",
  },

  subscribe: {
    title: "Add a subscription",
    lead: `Each event is posted to your URL as JSON, signed. Your server answers with a status from 200 to 299 within ${POST_TIMEOUT_MS / 1000} seconds.`,
    url: "URL of your server",
    urlHint: "Reachable from the internet, starting with https://.",
    urlHintLocal:
      "On this local service, http://, private addresses and unknown hosts are accepted. A deployed one refuses them.",
    events: "Events to receive",
    eventsRequired: "Choose at least one event.",
    urlRequired: "Enter the URL of your server.",
    submit: "Subscribe",
    doneTitle: "Subscription created",
    open: "I have stored it: open the subscription",
  },

  usagePage: {
    lead: "The requests of each API key over the last 24 hours, against its quota.",
    empty: "No API keys yet",
    emptyText: "Create a key in your product’s settings; its requests are counted here.",
    unnamed: "Key",
    created: "Created",
    lastUsed: "Last used",
    thisHour: "Within the last hour",
    quota: "Quota",
    quotaValue: (requests: number, seconds: number) =>
      seconds === 60
        ? `${count(requests, "request", "requests")} per minute`
        : `${count(requests, "request", "requests")} per ${count(seconds, "second", "seconds")}`,
    peak: (seconds: number) => (seconds === 60 ? "Busiest minute" : `Busiest ${seconds} seconds`),
    peakValue: (requests: number, share: string) =>
      `${count(requests, "request", "requests")}, ${share} of the quota`,
    revoked: (time: string) => `Revoked ${time}`,
    expires: (time: string) => `Expires ${time}`,
    expired: (time: string) => `Expired ${time}`,
    active: "Active",
    unused: "No requests in the last 24 hours.",
    requests: "Answered",
    refused: "Refused (429)",
    hour: "Hour",
    byHour: "Requests by hour",
    pages: "Pages of keys",
  },
};

/** The texts that every language must have. */
export type Texts = typeof en;
