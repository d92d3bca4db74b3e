import { randomId } from "../../src/contract/ids.ts";
import { POST_TIMEOUT_MS } from "../../src/contract/limits.ts";
import type { WebhookDelivery } from "../../src/contract/resources.ts";
import { type Outcome, succeeded } from "../../src/webhooks/outcome.ts";
import { post } from "../../src/webhooks/post.ts";
import { mintSecret, signatureHeaders } from "../../src/webhooks/signature.ts";
import { watchConnections } from "./connection.ts";

/**
 * `unclear`: what came proves nothing: no answer, or a refusal where what is right is refused as
 * well, or for its number (429). `not tested`: the first delivery got no answer.
 */
export type Verdict = "fulfilled" | "broken" | "unclear" | "not tested";

/** A duty of a receiver (contract, Delivery 3 and 4), and how it is put to the test. */
export interface Duty {
  duty: string;
  sent: string;
  expected: string;
  /** What follows when it is broken. */
  consequence: string;
}

/** What a receiver made of a duty. */
export interface Finding extends Duty {
  came: string;
  verdict: Verdict;
}

interface TestDelivery {
  headers: Record<string, string>;
  body: string;
}

interface Trial extends Duty {
  /** The value of `X-Service-Test`. */
  label: string;
  make(secret: string, now: number): Promise<TestDelivery[]>;
}

interface Attempt {
  outcome: Outcome;
  durationMs: number;
  /** Why there was no connection, if there was none. */
  failure: string | null;
}

const SIX_MINUTES_MS = 6 * 60_000;
const TIMEOUT_SECONDS = POST_TIMEOUT_MS / 1000;
const FORGERY = "whoever knows the URL can invent events";

const VALID: Trial = {
  label: "valid",
  duty: "accepts what is right",
  sent: "a right delivery",
  expected: "2xx",
  consequence: "every event is tried again for three days, then the subscription is disabled",
  make: async (secret, now) => [await signed(secret, testLead(now), now)],
};

const OTHERS: Trial[] = [
  {
    label: "no-signature",
    duty: "refuses what is unsigned",
    sent: "no signature",
    expected: "4xx",
    consequence: FORGERY,
    make: async (_secret, now) => [{ headers: {}, body: JSON.stringify(testLead(now)) }],
  },
  {
    label: "wrong-signature",
    duty: "refuses a wrong signature",
    sent: "signed with another secret",
    expected: "4xx",
    consequence: FORGERY,
    make: async (_secret, now) => [await signed(mintSecret(), testLead(now), now)],
  },
  {
    label: "tampered-body",
    duty: "refuses a changed body",
    sent: "body changed after signing",
    expected: "4xx",
    consequence: "whoever has seen one delivery can write others",
    make: async (secret, now) => {
      const { headers, body } = await signed(secret, testLead(now), now);
      return [{ headers, body: body.replace("Camille", "Camilla") }];
    },
  },
  {
    label: "stale",
    duty: "refuses an old time",
    sent: "t six minutes old",
    expected: "4xx",
    consequence: "a delivery that was overheard can be sent again for ever",
    make: async (secret, now) => [await signed(secret, testLead(now), now - SIX_MINUTES_MS)],
  },
  {
    label: "future",
    duty: "refuses a time ahead",
    sent: "t six minutes ahead",
    expected: "4xx",
    consequence: "a delivery that bears a later time can be sent again until then",
    make: async (secret, now) => [await signed(secret, testLead(now), now + SIX_MINUTES_MS)],
  },
  {
    label: "repeated",
    duty: "accepts a repetition",
    sent: "the same id twice",
    expected: "2xx, 2xx",
    consequence: "an event that comes again counts as failed, and comes again and again",
    make: async (secret, now) => {
      const lead = testLead(now);
      return [await signed(secret, lead, now), await signed(secret, lead, now)];
    },
  },
];

const PROMPTNESS: Duty = {
  duty: `answers within ${TIMEOUT_SECONDS} s`,
  sent: "all of the above",
  expected: `< ${TIMEOUT_SECONDS} s`,
  consequence: "a late answer counts as none; store the event, answer, and work afterwards",
};

/** Every duty that `checkReceiver` tries, in its order. */
export const DUTIES: Duty[] = [VALID, ...OTHERS, PROMPTNESS];

/**
 * Sends labelled test deliveries to `url`, signed and posted by the code of the service, and says
 * of each duty what came of it. They follow one another; without any answer to the first one, no
 * other is sent.
 *
 * @param secret what the receiver verifies with: `whsec_…`.
 */
export async function* checkReceiver(url: string, secret: string): AsyncGenerator<Finding> {
  const attempts: Attempt[] = [];
  const send = async (trial: Trial) => {
    const made: Attempt[] = [];
    for (const delivery of await trial.make(secret, Date.now()))
      made.push(await attempt(url, trial.label, delivery));
    attempts.push(...made);
    return { made, came: made.map(describe).join(", ") };
  };
  const valid = await send(VALID);
  const acceptsValid = accepted(valid.made);
  yield { ...VALID, came: valid.came, verdict: acceptsValid ? "fulfilled" : "broken" };
  const hasAnswered = valid.made.every(({ outcome }) => outcome.kind === "answered");
  for (const trial of OTHERS) {
    if (hasAnswered) {
      const { made, came } = await send(trial);
      yield { ...trial, came, verdict: judge(trial.expected, made, acceptsValid) };
    } else yield { ...trial, came: "–", verdict: "not tested" };
  }
  yield { ...PROMPTNESS, ...judgePromptness(attempts) };
}

async function attempt(url: string, label: string, delivery: TestDelivery): Promise<Attempt> {
  const startedAt = performance.now();
  const headers = { ...delivery.headers, "X-Service-Test": label };
  const connections = watchConnections();
  const outcome = await post(url, delivery.body, headers, Date.now());
  const failure = connections.end();
  return { outcome, durationMs: Math.round(performance.now() - startedAt), failure };
}

/** Whether the attempts were accepted, or refused, as expected; a refusal counts for what it says. */
function judge(expected: string, attempts: Attempt[], acceptsValid: boolean): Verdict {
  const statuses = attempts.flatMap(({ outcome }) =>
    outcome.kind === "answered" ? [outcome.status] : [],
  );
  const tells = acceptsValid && !statuses.includes(429) && statuses.length === attempts.length;
  if (expected === "4xx") {
    if (!statuses.every((status) => status >= 400 && status < 500)) return "broken";
    return tells ? "fulfilled" : "unclear";
  }
  if (accepted(attempts)) return "fulfilled";
  return tells ? "broken" : "unclear";
}

function accepted(attempts: Attempt[]): boolean {
  return attempts.every(({ outcome }) => succeeded(outcome));
}

function judgePromptness(attempts: Attempt[]): Pick<Finding, "came" | "verdict"> {
  const late = attempts.find(({ outcome }) => outcome.kind === "timed_out");
  if (late) return { came: describe(late), verdict: "broken" };
  const answered = attempts.filter(({ outcome }) => outcome.kind === "answered");
  if (answered.length === 0) return { came: "–", verdict: "not tested" };
  if (answered.length < attempts.length) return { came: "not all answered", verdict: "unclear" };
  const slowest = Math.max(...answered.map(({ durationMs }) => durationMs));
  return { came: `slowest ${slowest} ms`, verdict: "fulfilled" };
}

function describe({ outcome, durationMs, failure }: Attempt): string {
  if (outcome.kind === "timed_out") return failure ?? `no answer in ${TIMEOUT_SECONDS} s`;
  if (outcome.kind !== "answered") return failure ?? "not sent: a port that fetch refuses";
  const redirects = outcome.status >= 300 && outcome.status < 400;
  return `${outcome.status}${redirects ? " (not followed)" : ""} in ${durationMs} ms`;
}

async function signed(
  secret: string,
  delivery: WebhookDelivery,
  now: number,
): Promise<TestDelivery> {
  const body = JSON.stringify(delivery);
  return { headers: await signatureHeaders(secret, delivery.id, body, now), body };
}

/** An event like a real one, about nobody: the e-mail and the number are reserved for examples. */
function testLead(now: number): WebhookDelivery {
  return {
    id: randomId("event"),
    type: "lead.created",
    created_at: new Date(now).toISOString(),
    data: {
      id: randomId("lead"),
      source: "widget",
      agent_id: randomId("agent"),
      name: "Camille Test",
      email: "check-receiver@example.com",
      phone: "+33199000000",
      custom_fields: { test: true },
      created_at: new Date(now).toISOString(),
    },
  };
}
