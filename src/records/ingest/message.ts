import { InputError } from "../../contract/input-error.ts";
import { log, logError } from "../../log.ts";
import type { RecordingMethod } from "../recording/inputs.ts";
import { MissingReference } from "../recording/references.ts";

/** Maximum size of a queue message in bytes, minus the queue's own overhead. */
const MESSAGE_MAX_BYTES = 127_000;
/** How long after it was sent a run waits for its automation or lead; then it is set aside. */
const UNORDERED_MAX_SECONDS = 900;
/** A run's first wait; each further wait doubles its age. */
const UNORDERED_FIRST_WAIT_SECONDS = 5;
/** The only wait of a run that is older when it arrives: what it refers to may be right behind it. */
const UNORDERED_LAST_WAIT_SECONDS = 60;
/** Wait before retrying a message that could not be recorded; doubles each time. */
const INGEST_WAIT_SECONDS = { first: 10, max: 3_600 } as const;

/** A message and its outcome so far. */
export interface Item {
  message: Message;
  method?: RecordingMethod;
  outcome: Outcome;
}

export type Outcome =
  /** Not tried yet, or failed through no fault of its own. */
  | { kind: "untried" }
  /** A record that it refers to may still arrive. */
  | { kind: "early"; waitSeconds: number }
  | { kind: "refused"; reason: string }
  | { kind: "set_aside" }
  | { kind: "recorded" };

/** The content of a message: a JSON value, or a text that should be JSON. */
export function contentOf({ body }: Message): unknown {
  return body instanceof ArrayBuffer ? new TextDecoder().decode(body) : body;
}

/** The size of a value as JSON; 0 if it cannot be written as JSON. */
export function bytesOf(value: unknown): number {
  try {
    return new TextEncoder().encode(JSON.stringify(value)).length;
  } catch {
    return 0;
  }
}

/** Maximum length of a reason, which may quote a property name of any length. */
const REASON_MAX_LENGTH = 500;

/** Runs a step for a message. If it throws, that decides the message's outcome: null. */
export async function tryStep<T>(item: Item, step: () => T | Promise<T>): Promise<T | null> {
  try {
    return await step();
  } catch (error) {
    const { message } = item;
    const early = error instanceof MissingReference ? earlyWaitSeconds(message, Date.now()) : null;
    if (early !== null) item.outcome = { kind: "early", waitSeconds: early };
    else if (error instanceof InputError)
      item.outcome = { kind: "refused", reason: error.message.slice(0, REASON_MAX_LENGTH) };
    else logError("record_failed", error, { messageId: message.id });
    return null;
  }
}

/** How long a message waits for the record it refers to; null once it has waited long enough. */
function earlyWaitSeconds({ timestamp, attempts }: Message, now: number): number | null {
  const ageSeconds = Math.max(0, Math.ceil((now - timestamp.getTime()) / 1_000));
  const leftSeconds = UNORDERED_MAX_SECONDS - ageSeconds;
  if (leftSeconds > 0)
    return Math.min(leftSeconds, Math.max(UNORDERED_FIRST_WAIT_SECONDS, ageSeconds));
  return attempts === 1 ? UNORDERED_LAST_WAIT_SECONDS : null;
}

/** Sends a refused message to the dead-letter queue. If that fails, the message stays refused. */
export async function setAside(env: Env, item: Item): Promise<void> {
  const { message, method, outcome } = item;
  if (outcome.kind !== "refused") return;
  try {
    const content = contentOf(message);
    const letter = { reason: outcome.reason, method, message: content };
    if (bytesOf(letter) <= MESSAGE_MAX_BYTES) await env.DEAD_RECORDS.send(letter);
    // A message of the maximum size leaves no room for a reason.
    else if (typeof content !== "string") await env.DEAD_RECORDS.send(content);
    else await env.DEAD_RECORDS.send(content, { contentType: "text" });
    item.outcome = { kind: "set_aside" };
    log("record_set_aside", { messageId: message.id, method });
  } catch (error) {
    logError("set_aside_failed", error, { messageId: message.id });
  }
}

/** Acknowledges a message whose outcome is stored; any other comes back after a wait. */
export function settle({ message, outcome }: Item): void {
  if (outcome.kind === "recorded" || outcome.kind === "set_aside") message.ack();
  else if (outcome.kind === "early") message.retry({ delaySeconds: outcome.waitSeconds });
  else message.retry({ delaySeconds: waitSeconds(message.attempts) });
}

function waitSeconds(attempts: number): number {
  return Math.min(INGEST_WAIT_SECONDS.first * 2 ** (attempts - 1), INGEST_WAIT_SECONDS.max);
}
