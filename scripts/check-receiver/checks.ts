import { randomId } from "../../src/contract/ids.ts";
import { POST_TIMEOUT_MS } from "../../src/contract/limits.ts";
import { type Outcome, succeeded } from "../../src/delivery/policy.ts";
import { post, WEBHOOK_HEADER } from "../../src/delivery/post.ts";
import { createSigner, mintSecret } from "../../src/endpoints/signature.ts";
import type { WebhookDelivery } from "../../src/events/bodies.ts";
import { HARD_DELIVERIES, writeUnusually } from "../../src/events/samples.ts";
import { abortAfter } from "../../src/primitives/timing.ts";
import { watchConnections } from "./connection.ts";
import { PLAIN_FORMS } from "./forms.ts";

/**
 * `unclear`: the response proves nothing. There was none, or it came from a receiver that also
 * rejects valid deliveries or limits the number of requests (429). `not tested`: the first delivery
 * got no response.
 */
export type Result = "passed" | "failed" | "unclear" | "not tested";

/** A duty of every receiver (site/guides/processing.md), with its test. */
export interface Check {
  check: string;
  sent: string;
  expected: string;
  /** The consequence if the receiver does not do it. */
  consequence: string;
}

/** The result of a check. */
export interface Finding extends Check {
  got: string;
  result: Result;
}

interface TestDelivery {
  headers: Record<string, string>;
  body: string;
}

interface Trial extends Check {
  /** The value of `X-Service-Test`. */
  label: string;
  make(secret: string, now: number): Promise<TestDelivery[]>;
}

interface Attempt {
  outcome: Outcome;
  durationMs: number;
  /** Why there was no connection, if there was none. */
  failure: string | null;
  /** The receiver's `Date` header, if it sends one. */
  date: string | null;
  /** The beginning of the response's body. */
  said: string;
}

const SIX_MINUTES_MS = 6 * 60_000;
const TIMEOUT_SECONDS = POST_TIMEOUT_MS / 1000;
const FORGERY = "anyone who knows the URL can forge events";

const VALID: Trial = {
  label: "valid",
  check: "accepts a valid delivery",
  sent: "a valid delivery",
  expected: "2xx",
  consequence: "every event is retried, and in the end the webhook is disabled",
  make: async (secret, now) => [await signed(secret, testLead(now), now)],
};

/**
 * To a receiver that accepts the valid one: JSON as no serialiser writes it. To one that rejects it: JSON that
 * some serialisers leave as it is.
 */
const AS_SENT: Check = {
  check: "verifies the body as sent",
  sent: "the same, serialized anew",
  expected: "2xx",
  consequence:
    "your handler changes the body before it verifies it; compute the signature over the raw bytes, before anything parses them",
};

const OTHERS: Trial[] = [
  {
    label: "no-signature",
    check: "rejects a missing signature",
    sent: "no signature",
    expected: "4xx",
    consequence: FORGERY,
    make: async (_secret, now) => [{ headers: {}, body: JSON.stringify(testLead(now)) }],
  },
  {
    label: "wrong-signature",
    check: "rejects a wrong signature",
    sent: "signed with another secret",
    expected: "4xx",
    consequence: FORGERY,
    make: async (_secret, now) => [await signed(mintSecret(), testLead(now), now)],
  },
  {
    label: "tampered-body",
    check: "rejects a changed body",
    sent: "body changed after signing",
    expected: "4xx",
    consequence: "anyone who has seen one delivery can forge others",
    make: async (secret, now) => {
      const { headers, body } = await signed(secret, testLead(now), now);
      return [{ headers, body: body.replace("Camille", "Camilla") }];
    },
  },
  {
    label: "stale",
    check: "rejects an old timestamp",
    sent: "t six minutes old",
    expected: "4xx",
    consequence: "an intercepted delivery can be replayed forever",
    make: async (secret, now) => [await signed(secret, testLead(now), now - SIX_MINUTES_MS)],
  },
  {
    label: "future",
    check: "rejects a future timestamp",
    sent: "t six minutes ahead",
    expected: "4xx",
    consequence: "a delivery with a future timestamp can be replayed until that time",
    make: async (secret, now) => [await signed(secret, testLead(now), now + SIX_MINUTES_MS)],
  },
  {
    label: "repeated",
    check: "accepts a repeated event",
    sent: "the same id twice",
    expected: "2xx, 2xx",
    consequence: "an event that is sent again counts as failed, and is retried again and again",
    make: async (secret, now) => {
      const lead = testLead(now);
      return [await signed(secret, lead, now), await signed(secret, lead, now)];
    },
  },
  {
    label: "rotated",
    check: "accepts a rotated secret",
    sent: "two v1, in both orders",
    expected: "2xx, 2xx",
    consequence:
      "once the secret is rotated, every delivery is rejected, because the header has several v1 and any may be the valid one",
    make: async (secret, now) => {
      const other = mintSecret();
      return [
        await signed([other, secret], testLead(now), now),
        await signed([secret, other], testLead(now), now),
      ];
    },
  },
];

const PROMPTNESS: Check = {
  check: `responds within ${TIMEOUT_SECONDS} s`,
  sent: "all of the above",
  expected: `< ${TIMEOUT_SECONDS} s`,
  consequence: "a late response counts as a failure; store the event, respond, then process it",
};

/** The tolerance of a receiver's clock; it rejects timestamps beyond. */
const TOLERANCE_MS = 5 * 60_000;

/**
 * The signs of a receiver with a wrong clock. It rejects the valid delivery, and accepts one that is six
 * minutes old, or ahead.
 */
const CLOCK_FAULTS: Record<string, string> = {
  stale:
    "but the valid one was rejected: the clock of your server is slow; set it, and keep it right with NTP",
  future:
    "but the valid one was rejected: the clock of your server is fast; set it, and keep it right with NTP",
};

/** Describes what is wrong with a receiver's clock, from its `Date` header; null if it is right or unknown. */
function clockFault({ date }: Attempt): string | null {
  const fastMs = date === null ? 0 : Date.parse(date) - Date.now();
  if (!(Math.abs(fastMs) > TOLERANCE_MS)) return null;
  const minutes = Math.round(Math.abs(fastMs) / 60_000);
  return `the clock of your server is ${minutes} minutes ${fastMs > 0 ? "fast" : "slow"}, so it rejects the timestamp; set it, and keep it right with NTP`;
}

/** Shows what the receiver said when it rejected the valid delivery; null if it said nothing. */
function describeRejection({ said }: Attempt): string | null {
  return said === "" ? null : `${VALID.consequence}; it said: ${said}`;
}

/** All checks, in order. */
export const CHECKS: Check[] = [VALID, ...OTHERS, PROMPTNESS];

/**
 * Sends labelled test deliveries to `url`, one after another, signed and posted by the service's own
 * code, and yields the result of each check. If the first one gets no response, no others are sent.
 *
 * @param secret the secret that the receiver verifies with: `whsec_…`.
 * @param own headers that each delivery gets in addition, or in place of those of the same names.
 */
export async function* checkReceiver(
  url: string,
  secret: string,
  own: Record<string, string> = {},
): AsyncGenerator<Finding> {
  const webhookId = randomId("webhook");
  const attempts: Attempt[] = [];
  const withHeaders = ({ headers, body }: TestDelivery): TestDelivery => {
    const all = new Headers({ [WEBHOOK_HEADER]: webhookId, ...headers });
    for (const [name, value] of Object.entries(own)) all.set(name, value);
    return { headers: Object.fromEntries(all), body };
  };
  const send = async (trial: Trial) => {
    const made: Attempt[] = [];
    for (const delivery of await trial.make(secret, Date.now()))
      made.push(await attempt(url, trial.label, withHeaders(delivery)));
    attempts.push(...made);
    return { made, got: made.map(describe).join(", ") };
  };
  const valid = await send(VALID);
  const acceptsValid = accepted(valid.made);
  const [first] = valid.made;
  const fault = first && !acceptsValid ? (clockFault(first) ?? describeRejection(first)) : null;
  yield {
    ...VALID,
    got: valid.got,
    result: acceptsValid ? "passed" : "failed",
    consequence: fault ?? VALID.consequence,
  };
  const hasAnswered = valid.made.every(({ outcome }) => outcome.kind === "answered");
  const forms = acceptsValid ? [writeUnusually] : PLAIN_FORMS;
  let rewritten: Awaited<ReturnType<typeof send>> | null = null;
  for (const write of hasAnswered ? forms : []) {
    rewritten = await send({
      ...AS_SENT,
      label: "rewritten",
      make: (secret, now) => written(write, secret, now),
    });
    if (accepted(rewritten.made)) break;
  }
  yield {
    ...AS_SENT,
    got: rewritten?.got ?? "–",
    result: judgeAsSent(acceptsValid, rewritten?.made ?? null),
  };
  for (const trial of OTHERS) {
    if (hasAnswered) {
      const { made, got } = await send(trial);
      const isClock = !acceptsValid && accepted(made);
      yield {
        ...trial,
        got,
        result: judge(trial.expected, made, acceptsValid),
        consequence: (isClock && CLOCK_FAULTS[trial.label]) || trial.consequence,
      };
    } else yield { ...trial, got: "–", result: "not tested" };
  }
  yield { ...PROMPTNESS, ...judgePromptness(attempts) };
}

async function attempt(url: string, label: string, delivery: TestDelivery): Promise<Attempt> {
  const startedAt = performance.now();
  const headers = { ...delivery.headers, "X-Service-Test": label };
  const connections = watchConnections();
  const { outcome, response } = await post(url, delivery.body, headers, Date.now());
  const durationMs = Math.round(performance.now() - startedAt);
  const said = response ? await readStart(response) : "";
  const failure = connections.end();
  const date = response?.headers.get("Date") ?? null;
  return { outcome, durationMs, failure, date, said };
}

/** Maximum length of the shown part of a response, in characters, and how long to wait for it. */
const SAID_MAX = 200;
const SAID_WITHIN_MS = 250;

/** Reads the beginning of a response's body, in one line, and cancels the rest. */
async function readStart({ body }: Response): Promise<string> {
  if (!body) return "";
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => {});
  const { value } = await abortAfter(SAID_WITHIN_MS, (signal) => {
    signal.addEventListener("abort", cancel);
    return reader.read().catch(() => ({ value: undefined }));
  });
  cancel();
  return new TextDecoder().decode(value).slice(0, SAID_MAX).replace(/\s+/g, " ").trim();
}

/** Judges whether the attempts were accepted or rejected as expected, if the responses prove anything. */
function judge(expected: string, attempts: Attempt[], acceptsValid: boolean): Result {
  const statuses = attempts.flatMap(({ outcome }) =>
    outcome.kind === "answered" ? [outcome.status] : [],
  );
  const isConclusive =
    acceptsValid && !statuses.includes(429) && statuses.length === attempts.length;
  if (expected === "4xx") {
    if (!statuses.every((status) => status >= 400 && status < 500)) return "failed";
    return isConclusive ? "passed" : "unclear";
  }
  if (accepted(attempts)) return "passed";
  return isConclusive ? "failed" : "unclear";
}

/**
 * Judges the rewritten deliveries. A receiver that accepts only one of both does not verify the bytes that were sent.
 */
function judgeAsSent(acceptsValid: boolean, rewritten: Attempt[] | null): Result {
  if (!rewritten) return "not tested";
  if (accepted(rewritten)) return acceptsValid ? "passed" : "failed";
  return acceptsValid ? judge(AS_SENT.expected, rewritten, true) : "unclear";
}

function accepted(attempts: Attempt[]): boolean {
  return attempts.every(({ outcome }) => succeeded(outcome));
}

function judgePromptness(attempts: Attempt[]): Pick<Finding, "got" | "result"> {
  const late = attempts.find(({ outcome }) => outcome.kind === "timed_out");
  if (late) return { got: describe(late), result: "failed" };
  const answered = attempts.filter(({ outcome }) => outcome.kind === "answered");
  if (answered.length === 0) return { got: "–", result: "not tested" };
  if (answered.length < attempts.length) return { got: "not all responded", result: "unclear" };
  const slowest = Math.max(...answered.map(({ durationMs }) => durationMs));
  return { got: `slowest ${slowest} ms`, result: "passed" };
}

function describe({ outcome, durationMs, failure }: Attempt): string {
  if (outcome.kind === "timed_out") return failure ?? `no response within ${TIMEOUT_SECONDS} s`;
  if (outcome.kind !== "answered") return failure ?? "not sent: fetch blocks this port";
  const redirects = outcome.status >= 300 && outcome.status < 400;
  return `${outcome.status}${redirects ? " (not followed)" : ""} in ${durationMs} ms`;
}

/** Makes a valid delivery whose body is written in a given way. */
async function written(
  write: (event: WebhookDelivery) => string,
  secret: string,
  now: number,
): Promise<TestDelivery[]> {
  const event = testLead(now);
  const body = write(event);
  const sign = await createSigner(secret);
  return [{ headers: await sign(event.id, body, now), body }];
}

/** @param secrets all of them sign, in order. */
async function signed(
  secrets: string | string[],
  delivery: WebhookDelivery,
  now: number,
): Promise<TestDelivery> {
  const body = JSON.stringify(delivery);
  const sign = await createSigner(...[secrets].flat());
  return { headers: await sign(delivery.id, body, now), body };
}

/** Makes the sample event with new ids and times. */
function testLead(now: number): WebhookDelivery {
  const { data, ...event } = HARD_DELIVERIES["lead.created"];
  const created_at = new Date(now).toISOString();
  return {
    ...event,
    id: randomId("event"),
    created_at,
    data: { ...data, id: randomId("lead"), agent_id: randomId("agent"), created_at },
  };
}
