import type { ErrorCode, Reason } from "../../../src/contract/errors.ts";
import { mapEventTypes } from "../../../src/contract/event-types.ts";
import type { HISTORY_METHODS } from "../../../src/contract/history.ts";
import {
  KEY_CHANGES_PER_DAY,
  PENDING_MAX,
  PORTAL_CHANGES_KEPT,
  POST_TIMEOUT_MS,
  REDELIVERY_MAX_AGE_MS,
  RESPONSES_PER_DAY,
  RETRY_AFTER_MAX_SECONDS,
} from "../../../src/contract/limits.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import { type Ended, explainFailure } from "../../../src/history/failures.ts";
import { counter } from "./count.ts";

const count = counter("en");
const { format: number } = new Intl.NumberFormat("en");

// The errors of the portal's API.
const errors = {
  invalid_request: "The request is not valid.",
  invalid_api_key: "The session is no longer valid.",
  workspace_access_denied: "The workspace has no access to this service.",
  webhook_not_found: "This webhook does not exist in the workspace.",
  route_not_found: "This feature is not available.",
  rate_limited: "Too many requests.",
  internal_error: "Something failed on our side. Try again in a moment.",
} satisfies Partial<Record<ErrorCode, string>>;

const reasons: Record<Reason | "changed_meanwhile" | "read_only_session", string> = {
  changed_meanwhile:
    "Someone else has changed this in the meantime. Nothing was saved. Close this dialog to see the change.",
  read_only_session: "This session is read-only.",
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
  subscription_limit_reached: "The workspace has reached its maximum number of webhooks.",
  idempotency_key_reused: "This idempotency key has been used for another request.",
};

/** The changes in the history of a workspace that are not about a webhook. */
const history: Record<(typeof HISTORY_METHODS)[number], string> = {
  createWorkspace: "Created the workspace",
  updateWorkspace: "Changed the workspace",
  setWorkspaceAccess: "Changed the access of the workspace",
  createApiKey: "Created an API key",
  updateApiKey: "Changed an API key",
  rollApiKey: "Rotated an API key",
  revokeApiKey: "Revoked an API key",
  createPortalLink: "Created a link to the portal",
  openPortalSession: "Opened the portal",
  endPortalSessions: "Ended all sessions of the portal",
  eraseLeads: "Erased leads",
  omitChanges: "Made more changes of webhooks that day, which are not listed",
};

/** Every text of the portal in English; the type of all languages. */
export const en = {
  errors,
  reasons,
  types: mapEventTypes(({ name }) => name),
  languageName: "English",
  skip: "Skip to the content",
  product: "API and webhooks",
  sections: "Sections",
  webhooks: "Webhooks",
  usage: "API keys",
  docs: "Docs",
  backToApp: "Back to the app",
  theme: "Theme",
  themes: { auto: "Auto", light: "Light", dark: "Dark" },
  language: "Language",
  readOnly: "You can see everything here but change nothing: this session is read-only.",
  timeZone: (zone: string) => `Times and filters are in the time zone ${zone}.`,
  sessionUntil: (time: string) => `This session ends on ${time}`,
  loading: "Loading…",
  never: "Never",
  none: "None",
  noDescription: "None",
  at: (day: string, time: string) => `${day}, ${time}`,
  when: {
    today: (time: string) => `at ${time}`,
    day: (day: string, time: string) => `on ${day} at ${time}`,
  },
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
  milliseconds: (n: number) => `${number(n)} ms`,

  session: {
    ending: (time: string) =>
      `This session ends at ${time}. To go on, open the portal in another tab, from the app.`,
    kept: "What you had typed is kept in this tab for 15 minutes, and will be there again.",
    missing: {
      title: "Open the portal from the app",
      text: "This page opens from a temporary link. Get one in the settings of your app.",
    },
    outdated: {
      title: "This link has expired",
      text: "A link to the portal can be opened for two minutes. Get a new one in the settings of your app.",
    },
    ended: {
      title: "Your session has ended",
      text: "The portal stays open for a limited time. Open it again from the settings of your app.",
    },
    withdrawn: {
      title: "This workspace has no access",
      text: "This workspace no longer has access to the API and its webhooks. Contact the person who manages your plan, then try again.",
    },
    toApp: "Go to the app",
  },

  discard: {
    title: "Discard what you have typed?",
    keep: "Keep it",
    submit: "Discard it",
  },

  arrival: {
    title: (name: string) => `Open ${name}?`,
    text: (name: string, current: string) =>
      `The link that you followed opens ${name}. This tab shows ${current}.`,
    accept: (name: string) => `Open ${name}`,
    stay: (current: string) => `Stay in ${current}`,
    expired: {
      title: "The link has expired",
      text: "A link to the portal can be opened for two minutes. Get a new one in the settings of your app.",
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
      seconds < 120
        ? `Too many requests. Try again in ${count(seconds, "second", "seconds")}.`
        : `The limit of this hour is reached. Try again in ${count(Math.ceil(seconds / 60), "minute", "minutes")}.`,
    stale: "What you see may be out of date.",
    reference: (id: string) => `Reference: ${id}`,
    notFound: "Page not found",
    notFoundText: "It was deleted, or the address is wrong.",
    notHere: (workspace: string) => `This webhook is not in ${workspace}`,
    notHereText: (workspace: string) =>
      `It belongs to another workspace, or it was deleted. This tab shows ${workspace}: for another workspace, open its portal from the app, then follow the link again.`,
    toWebhooks: "See all webhooks",
    toHistory: "See what was deleted",
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
  disabledByFailures: "Disabled after failing",
  deliveryStates: {
    pending: "New",
    retrying: "Failing, will be retried",
    delivered: "Delivered",
    exhausted: "Failed for good",
    cancelled: "Cancelled",
    test: "Test",
  },
  /** In the legend of a chart. */
  chartOutcomes: {
    delivered: "Delivered",
    failed: "Failed, will be retried",
    exhausted: "Failed for good",
  },
  explain: (attempt: Ended) => explainFailure(attempt, "en"),
  outcomes: {
    answered: (status: number) => `Response ${status}`,
    timed_out: "No response in time",
    unreachable: "Unreachable",
    refused: "Not sent: URL blocked",
    unreadable: "Not sent: the lead is damaged",
    overflow: "Failed for good: too many were waiting",
  },

  home: {
    well: (active: number, all: number) => {
      if (active === 0) return all === 1 ? "Your webhook is disabled" : "All webhooks are disabled";
      if (all === 1) return "Your webhook is working";
      if (active === all && all === 2) return "Both webhooks are working";
      if (active === all) return `All ${all} webhooks are working`;
      return `${active} of ${all} webhooks ${active === 1 ? "is" : "are"} working; the others are disabled`;
    },
    failing: (failing: number, all: number) =>
      all === 1
        ? "Your webhook is failing"
        : `${failing} of ${all} webhooks ${failing === 1 ? "is" : "are"} failing`,
    troubled: (troubled: number, all: number) =>
      all === 1
        ? "Your webhook needs attention"
        : `${troubled} of ${all} webhooks ${troubled === 1 ? "needs" : "need"} attention`,
    full: (max: number) =>
      `This workspace has reached its limit of ${max} webhooks. Delete one to add another.`,
    emptyTitle: "No webhooks yet",
    emptyText:
      "Add the URL of your server. Every new lead, run or automation change is sent to it within seconds, with a signature.",
    webhook: "Webhook",
    health: "Health",
    success: "7 days",
    lastFailure: "Last failure",
    failingSince: (time: string) => `Failing since ${time}`,
  },

  failures: {
    title: "Failures",
    lead: "Deliveries of all webhooks that are failing and will be retried, or have failed for good.",
    empty: "No failures",
    emptyText: "No delivery is failing, and none has failed for good.",
    pages: "Pages of failures",
    count: (n: number, hasMore: boolean) => (hasMore ? `${number(n)}+` : number(n)),
    retrying: (n: string, _count: number) => `${n} failing, will be retried`,
    exhausted: (n: string, _count: number) => `${n} failed for good`,
    webhooks: (n: number) => count(n, "webhook", "webhooks"),
  },

  tabs: {
    label: "Parts of the webhook",
    overview: "Overview",
    deliveries: "Deliveries",
    settings: "Settings",
    history: "History",
    waiting: (n: string) => `${n} waiting`,
  },

  trouble: {
    said: (outcome: string, time: string) => `${outcome}, ${time}. Your server’s own words:`,
    nothingSaid: (outcome: string, time: string) => `${outcome}, ${time}.`,
    notStored: "Its text was not stored.",
    headers: "Edit headers…",
    url: "Change the URL…",
  },

  webhook: {
    id: "Id",
    created: "Created",
    createdBy: "Created with",
    portal: "The portal",
    events: "Event types",
    waiting: "Waiting",
    noneWaiting: "None",
    counts: (waiting: string, retrying: number) =>
      retrying === 0
        ? waiting
        : `${waiting}, of which ${number(retrying)} ${retrying === 1 ? "has" : "have"} failed before`,
    deliveriesWait: (waiting: string, n: number) =>
      `${waiting}\u00a0${n === 1 ? "delivery is" : "deliveries are"} waiting.`,
    nextAttempt: "Next attempt",
    lastAttempt: "Last attempt",
    asap: "As soon as possible",
    failing: (failures: number, since: string) =>
      `Failing since ${since}: ${count(failures, "failed attempt", "failed attempts in a row")}`,
    next: (time: string | null) =>
      time === null ? "The next attempt is about to start." : `The next attempt is ${time}.`,
    overflow: (time: string) =>
      `More than ${count(PENDING_MAX, "delivery", "deliveries")} have been waiting since ${time}, so the oldest have failed for good. They can be resent.`,
    responseLimit: `The responses to ${number(RESPONSES_PER_DAY)} failed attempts of today (UTC) are stored. Later ones are not: see the log of your server.`,
    retried:
      "Deliveries are retried with increasing delays: once the problem is fixed, the pending ones are sent automatically.",
    outlook: (time: string | null) =>
      time === null
        ? "If they keep failing, the webhook will be disabled."
        : `Without a success, the webhook will be disabled on ${time} at the earliest.`,
    slow: `Your server is slow to respond, so fewer deliveries are sent at a time. A response after ${POST_TIMEOUT_MS / 1000} seconds is a failure. Respond first and process events afterwards. A few quick responses end this.`,
    rejecting: (type: string, since: string) =>
      `Your server has accepted no event of the type “${type}” since ${since}, although it accepts others.`,
    rejectingOutlook:
      "Other events are still delivered, and the webhook stays active. Rejected deliveries are retried with increasing delays. If you no longer want an event type, remove it from the webhook.",
    backlog:
      "Deliveries are due, and are being sent at the pace that your server can keep up with.",
    disabled: (time: string) => `Disabled ${time}. Nothing is sent until you enable it.`,
    disabledFailing: (time: string) =>
      `Disabled ${time}, after failing for too long. Nothing is sent until you enable it.`,
    undelivered: "Events that were not delivered are kept, and can be sent when you enable it.",
    byDay: "Delivery attempts by day (UTC)",
    median: "Median response time",
    p95: "95th percentile",
    responseTime: (day: string) => `Response time on ${day}`,
    responseTimes: (median: string, p95: string) => `Median ${median}, 95% within ${p95}`,
    success: "Successful attempts in 7 days",
    noAttempts: "No attempts",
    day: "Day",
    newest: "Latest deliveries",
    failed: "Failed deliveries",
    allFailed: "Show all that failed",
    noneFailed: "No failed deliveries",
    noneFailedText: "Those that failed are waiting to be sent again.",
    seeChanges: "See who disabled it",
  },

  settings: {
    endpoint: "Endpoint",
    endpointText: "Where events are sent, and which ones.",
    secretText: "Your server verifies the signature of each delivery with it. It was shown once.",
    show: "Show the whole URL",
    hide: "Hide",
    switch: "Enable or disable",
    remove: "Delete",
    removeText: "Ends the webhook and deletes its history. This cannot be undone.",
  },

  deliveries: {
    state: "State",
    event: "Event",
    type: "Event type",
    status: "Last response",
    noAnswer: "No response",
    when: "When",
    anyTime: "Any time",
    today: "Today",
    yesterday: "Yesterday",
    week: "Last 7 days",
    custom: "From … to …",
    since: "From",
    until: "To",
    find: "Find",
    findHint: "Name, e-mail, phone or id",
    waiting: "Waiting: new or failing",
    filter: (n: number) => (n === 0 ? "Filter" : `Filter (${n})`),
    all: "All",
    allStatuses: "All",
    recorded: "Recorded",
    attempts: "Attempts",
    lastAnswer: "Last response",
    next: (time: string) => `Next ${time}`,
    soonBecause: (cause: string) => `Next attempt soon: ${cause}`,
    nextBecause: (time: string, cause: string) => `Next ${time}: ${cause}`,
    pages: "Pages of deliveries",
    empty: "No deliveries yet",
    emptyText:
      "The next event of this workspace shows up here. Send a test event to check your server now.",
    noneAtAll: "No deliveries match these filters",
    noneOlder: "No older deliveries match these filters",
    noneSoFar: "No match so far",
    lookOn: "Look for older ones",
    untilFirst: "“To” must be later than “From”.",
    looking: "Looking through older deliveries.",
    lookedBackTo: (time: string) => `Looked back to ${time}.`,
    noLead: (text: string) =>
      `No lead here has “${text}” in its name, e-mail address or phone number.`,
    showAll: "Show all deliveries",
    sendAgain: "Resend",
    sendAgainOf: (type: string, time: string) => `Resend: ${type}, ${time}`,
    sendNow: "Send now",
    sendNowOf: (type: string, time: string) => `Send now: ${type}, ${time}`,
  },

  delivery: {
    title: "Delivery",
    back: "All deliveries",
    id: "Event",
    recorded: "Recorded",
    settled: "Ended",
    noAttempt: "No attempts yet.",
    pretty: "Formatted",
    exact: "Raw",
    exactHint: "The signature covers exactly these bytes.",
    kept: (days: number) => `Events are kept for ${count(days, "day", "days")}.`,
  },

  exchange: {
    request: "Headers sent",
    curl: "Copy as curl",
    curlHint:
      "The command uses the current URL and the signature of this attempt: after five minutes, a server must reject it. Custom headers are not included.",
    retryAfter: `With a 429 or 503, Retry-After delays our next request, by at most ${RETRY_AFTER_MAX_SECONDS / 60} minutes.`,
    response: "Your server’s response:",
    cut: "The beginning of your server’s response:",
    empty: "The response had no body.",
    notStored: `The response was not stored: only those to the first ${number(RESPONSES_PER_DAY)} failed attempts of a day are.`,
    location: "Redirects to",
  },

  follow: {
    button: "Use this URL…",
    title: "Send to this URL from now on?",
    text: "All events of the webhook go there, waiting ones too:",
    hint: "Is this your server? A redirect often leads to a login page.",
    submit: "Use this URL",
    result: "The webhook now sends to this URL. Waiting deliveries go there, too.",
  },

  sendAgain: {
    queued: "Queued…",
    ended: (outcome: string) => `Sent: ${outcome}`,
    faults: {
      webhookId: "Nothing is sent while the webhook is disabled.",
      eventIds: "It cannot be sent: the webhook does not include this event type.",
    },
    button: "Replay…",
    title: "Send the events of a period again",
    text: "They keep their ids and content, and are sent after new events.",
    stillFailing: "The last attempts failed: check your server with a test event first.",
    which: "Which ones",
    exhausted: "Failed for good: all attempts were used up",
    cancelled: "Cancelled: the webhook was disabled before they were sent",
    missed:
      "Missed: stored while the webhook was disabled or did not list their type. Events whose type no webhook listed were not stored",
    retrying: "Failing: waiting to be retried",
    delivered: "Delivered: your server has accepted them already",
    submit: "Replay",
    submitCount: (n: number) => `Replay ${count(n, "delivery", "deliveries")}`,
    counting: "Counting…",
    period: (since: string, until: string | null) =>
      until === null ? `Since ${since}` : `${since} to ${until}`,
    shown: {
      button: "Replay these…",
      title: "Replay the deliveries of this list",
      submit: "Replay",
      submitCount: (n: number) => `Replay ${count(n, "delivery", "deliveries")}`,
    },
    nothing: "There is nothing to replay.",
  },

  replays: {
    title: "Replay",
    begun: "The replay has begun.",
    missed: "Missed",
    waiting: "Will be resent",
    fact: (name: string, value: string) => `${name}: ${value}`,
    examining: (n: string) => `Looking for deliveries, ${n} so far.`,
    sent: (n: string, all: string) => `${n} of ${all} sent.`,
    running: (n: string, all: string) => `Running: ${n} of ${all} sent.`,
    held: "What your server does not accept at the moment waits until it does.",
    left: (minutes: number) =>
      minutes <= 1
        ? "Less than a minute left."
        : `About ${count(minutes, "minute", "minutes")} left.`,
    delivered: (n: number) => `${number(n)} delivered.`,
    failed: (n: number) => `${number(n)} failed.`,
    notSent: (n: number) => `${number(n)} not sent.`,
    endedAt: (time: string) => `Ended ${time}.`,
    results: {
      done: "Done.",
      stopped: "Stopped.",
      interrupted: "Ended, because the webhook was disabled.",
    },
  },

  since: {
    label: "Since",
    first: (time: string) => `First undelivered (${time})`,
    hour: "One hour ago",
    day: "24 hours ago",
    week: "7 days ago",
    other: "Another time…",
    time: "Time",
    hint: `At most ${REDELIVERY_MAX_AGE_MS / DAY_MS} days ago, in the time zone of your device.`,
    required: `Choose a time in the last ${REDELIVERY_MAX_AGE_MS / DAY_MS} days.`,
  },

  test: {
    button: "Send a test event…",
    title: "Send a test event",
    text: "One sample event is sent now, signed like any other, with the header X-Service-Test: true. The deliveries show the request and the response.",
    submit: "Send",
    again: "Send another",
    details: "Show the request and the response",
    once: "A test event is sent once, whatever the response, and is not counted.",
    sending: "Waiting for the server’s response…",
    accepted: "Your server accepted it.",
  },

  catalogue: {
    title: "Event types",
    lead: "The events that a webhook can receive. Each one is sent as JSON, with a signature.",
    docs: "How to receive and verify them",
    when: mapEventTypes(({ when, data }) => `Sent ${when}. “data” is ${data}.`),
    example: "Example",
    fieldsOf: (type: string) => `Fields of ${type}`,
    field: "Field",
    about: "Meaning",
  },

  edit: {
    button: "Edit…",
    title: "Edit the webhook",
    description: "Description",
    descriptionHint: "Only shown here.",
    text: "Waiting deliveries go to the new URL. Those of event types that you remove are cancelled.",
    submit: "Save",
    result: "The changes are saved.",
    unchanged: "Nothing was changed.",
    headersStay:
      "Custom headers do not follow the webhook to another host or port: add them again there.",
    headersDropped: (names: string) =>
      `The changes are saved. These headers were removed, because the new URL has another host or port: ${names}.`,
  },

  headers: {
    title: "Custom headers",
    text: "Each request carries them, for instance a token for a gateway. Their values are never shown again.",
    none: "None",
    button: "Add a header…",
    addRow: "Add a header",
    replace: "Replace…",
    remove: "Remove…",
    full: (max: number) => `A webhook has at most ${max} headers.`,
    add: { title: "Add a header", submit: "Add" },
    change: { title: "Replace the value of a header", submit: "Replace" },
    drop: { title: "Remove this header?", submit: "Remove" },
    dropText: (name: string) => `Requests no longer carry ${name}. The other headers stay.`,
    name: "Name",
    value: "Value",
    hint: "Letters without accents, digits and punctuation, such as “Bearer token”.",
    required: "Enter a name and a value, and each name once.",
    refused:
      "Not saved: the name or the value is not valid. Names such as Host, Content-Type, User-Agent or Webhook-Id are reserved.",
    result: "The headers are saved.",
  },

  history: {
    title: "History",
    lead: `What was changed in this workspace, where and by whom: webhooks, API keys, access, and links to this portal. Entries are kept for a year. The list has the first ${KEY_CHANGES_PER_DAY} changes a day of webhooks with one API key. It has every change in this portal of a URL, a secret or a header, and at least the newest ${number(PORTAL_CHANGES_KEPT)} of the others.`,
    empty: "No changes",
    emptyText: "Nothing was changed at the time of this page.",
  },

  changes: {
    empty: "No changes yet",
    emptyText: "Every change of this webhook is listed here, with who made it.",
    pages: "Pages of changes",
    automatic: (time: string) => `Disabled automatically on ${time}, after failing for too long.`,
    someone: "Not named by the app",
    via: { portal: "in the portal", api: "through the API", app: "in the app" },
    failed: "It failed, or its result is not known.",
    nothing: "nothing",
    done: {
      createWebhook: "Added the webhook",
      deleteWebhook: "Deleted the webhook",
      updateWebhook: "Edited the webhook",
      disableWebhook: "Disabled the webhook",
      enableWebhook: "Enabled the webhook",
      rotateWebhookSecret: "Created a new secret",
      endSecretOverlap: "Stopped using the earlier secrets",
      sendTestEvent: "Sent a test event",
      redeliver: "Resent deliveries",
      stopReplay: "Stopped a replay",
      ...history,
    },
    fields: {
      url: "URL",
      events: "Event types",
      description: "Description",
      headers: "Custom headers",
      disabledAt: "Disabled",
      rotatedAt: "New secret",
    },
  },

  disable: {
    button: "Disable…",
    title: "Disable this webhook?",
    text: "Nothing is sent until you enable it. Events that happen in the meantime are kept, and can be sent then.",
    offer:
      "Disabling it stops all deliveries until you enable it again. Events that happen in the meantime are kept, and can be sent then.",
    submit: "Disable",
    result: "The webhook is disabled.",
  },

  enable: {
    button: "Enable…",
    title: "Enable the webhook",
    text: "Deliveries start again with the next event.",
    missed: "Also send the events that were missed",
    submit: "Enable",
    result: (n: number, hasMore: boolean) => {
      if (n === 0 && !hasMore) return "The webhook is enabled.";
      const missed = hasMore ? "the missed events" : count(n, "missed event", "missed events");
      return `The webhook is enabled; ${missed} will be sent.`;
    },
  },

  secret: {
    text: "Deliveries are signed with the new secret immediately. The current one can keep signing alongside it for a while, so that you can switch your server without losing an event.",
    overlap: "Keep the current secret",
    overlaps: {
      now: "No, revoke it immediately",
      hour: "For 1 hour",
      day: "For 24 hours",
      week: "For 7 days",
    },
    submit: "Create and copy a new secret",
    label: "Signing secret",
    once: "Store this secret now, because it is not shown again. Your server needs it to check the signature of each delivery.",
    howTo: "How to check signatures",
    tooMany:
      "Too many earlier secrets are still valid. Choose “No, revoke it immediately”, or wait until one has expired.",
    doneTitle: "New secret",
    late: (name: string) =>
      `The secret of ${name} was replaced after you had left the form. This is the new one.`,
    lost: "The server did not respond. It may have created a secret that nobody has seen: create another one, which is then valid.",
    ended: "The previous secret no longer signs.",
    copied: "The new secret is in your clipboard.",
    stored: "I have stored it",
  },

  endOverlap: {
    until: (time: string) => `Deliveries are also signed with earlier secrets, until ${time}.`,
    button: "Stop using the earlier secrets…",
    title: "Sign with the current secret only?",
    text: "A server that still has an earlier secret will reject every delivery. This cannot be undone.",
    submit: "Stop using them",
    result: "Only the current secret signs from now on.",
  },

  remove: {
    button: "Delete…",
    title: "Delete this webhook?",
    text: (name: string) =>
      `${name} sends nothing more. Its delivery history is deleted too. This cannot be undone.`,
    pending: (n: string) => `Deliveries that are waiting will be cancelled: ${n}.`,
    submit: "Delete",
    result: "The webhook is deleted.",
  },

  subscribe: {
    title: "Add a webhook",
    lead: `Each event is sent to your URL as JSON, with a signature. Your server must respond with a status from 200 to 299 within ${POST_TIMEOUT_MS / 1000} seconds.`,
    url: "URL of your server",
    urlHint: "Reachable from the internet, starting with https://.",
    ipAddress: "Nothing can be delivered to an IP address. Use a host name.",
    urlHintLocal:
      "Locally, http://, private addresses and unknown hosts are accepted. In production, they are not.",
    events: "Event types to receive",
    eventsRequired: "Choose at least one event type.",
    urlRequired: "Enter the URL of your server.",
    submit: "Add the webhook",
    doneTitle: "Webhook added",
    late: "It was added after you had left the form. If you do not want it, delete it on its page, which opens next.",
  },

  usagePage: {
    lead: "The requests of each API key over the last 24 hours, against its rate limit.",
    empty: "No API keys yet",
    emptyText: "Create a key in the settings of your app. Its requests are counted here.",
    unnamed: "Unnamed key",
    created: "Created",
    lastUsed: "Last used",
    thisHour: "Within the last hour",
    quota: "Rate limit",
    quotaValue: (requests: number, seconds: number) =>
      seconds === 60
        ? `${count(requests, "request", "requests")} per minute`
        : `${count(requests, "request", "requests")} per ${count(seconds, "second", "seconds")}`,
    peak: (seconds: number) => (seconds === 60 ? "Busiest minute" : `Busiest ${seconds} seconds`),
    peakValue: (requests: number, share: string) =>
      `${count(requests, "request", "requests")}, ${share} of the limit`,
    revoked: (time: string) => `Revoked ${time}`,
    expires: (time: string) => `Expires ${time}`,
    expired: (time: string) => `Expired ${time}`,
    active: "Active",
    unused: "No requests in the last 24 hours.",
    requests: "Within the limit",
    refused: "Rate-limited (429)",
    hour: "Hour",
    byHour: "Requests by hour",
    pages: "Pages of keys",
  },
};

/** The texts that every language must have. */
export type Texts = typeof en;
