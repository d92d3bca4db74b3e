import { D1_ERRORS } from "../../src/db/errors.ts";

/** One way in which a call to a platform service fails. */
export interface Fault {
  message: string;
  /** `after`: the service did what was asked, and only its reply is lost. */
  moment: "before" | "after";
  /** Whether the calling code retries immediately. */
  retried: boolean;
  /** Properties that the runtime sets on the error. */
  marks?: { retryable?: boolean; durableObjectReset?: boolean; overloaded?: boolean };
}

/** Errors of a database that was not reached. */
const UNREACHED = /while starting up|Cannot resolve/;

/** Every error of D1's table, before the commit and, if possible, after it. */
export const D1_FAULTS: readonly Fault[] = D1_ERRORS.flatMap(({ message, fault }) => {
  const retried = fault === "nobody";
  const mayBeCommitted = retried && !UNREACHED.test(message);
  const moments = mayBeCommitted ? (["before", "after"] as const) : (["before"] as const);
  return moments.map((moment) => ({ message: `D1_ERROR: ${message}`, moment, retried }));
});

const RESET = {
  message: "Durable Object reset because its code was updated.",
  marks: { retryable: true, durableObjectReset: true },
  retried: true,
};
const LOST = { message: "Network connection lost.", marks: { retryable: true }, retried: true };

/** https://developers.cloudflare.com/durable-objects/best-practices/error-handling/ */
const OBJECT_FAULTS: readonly Fault[] = [
  { ...RESET, moment: "before" },
  { ...RESET, moment: "after" },
  { ...LOST, moment: "before" },
  { ...LOST, moment: "after" },
  {
    message: "Durable Object is overloaded. Too many requests queued.",
    marks: { overloaded: true },
    moment: "before",
    retried: false,
  },
];

const QUEUE_FAULTS: readonly Fault[] = [
  { message: "Queue is overloaded. Please back off.", moment: "before", retried: false },
  { message: "Queue is overloaded. Please back off.", moment: "after", retried: false },
];

/** How each kind of call can fail. */
export const FAULTS = {
  "D1 batch": D1_FAULTS,
  "D1 query": D1_FAULTS,
  object: OBJECT_FAULTS,
  queue: QUEUE_FAULTS,
} as const satisfies Record<string, readonly Fault[]>;

export type Call = keyof typeof FAULTS;
const CALLS = Object.keys(FAULTS) as Call[];

const INJECTED = "[injected]";

/** The error of a fault, distinguishable from one that was not injected. */
export function toError({ message, marks }: Fault): Error {
  return Object.assign(new Error(`${message} ${INJECTED}`), marks);
}

/**
 * Whether the error that ended a call was injected and is one that the code rightly passes on.
 *
 * @param error the text of the error.
 * @param isTriedOnce whether the call is never retried, whatever the error.
 */
export function isExcused(error: string, isTriedOnce = false): boolean {
  if (!isInjected(error)) return false;
  const fault = Object.values(FAULTS)
    .flat()
    .find(({ message }) => error.includes(message));
  return isTriedOnce || fault?.retried === false;
}

export function isInjected(error: string): boolean {
  return error.includes(INJECTED);
}

/** How often each fault was injected into each kind of call. */
export class Injections {
  #counts = Object.fromEntries(CALLS.map((call) => [call, FAULTS[call].map(() => 0)])) as Record<
    Call,
    number[]
  >;

  /** @param index index in `FAULTS`. */
  note(call: Call, index: number): void {
    this.#counts[call][index] = (this.#counts[call][index] ?? 0) + 1;
  }

  get total(): number {
    return CALLS.flatMap((call) => this.#counts[call]).reduce((total, each) => total + each, 0);
  }

  /** For each kind of call, the first of the least injected faults. */
  next(): Record<Call, number> {
    return Object.fromEntries(
      CALLS.map((call) => [call, this.#counts[call].indexOf(Math.min(...this.#counts[call]))]),
    ) as Record<Call, number>;
  }

  /** What was never injected. */
  missing(): string[] {
    return CALLS.flatMap((call) =>
      FAULTS[call].flatMap(({ message, moment }, index) =>
        this.#counts[call][index] ? [] : [`${call}, ${moment}: ${message}`],
      ),
    );
  }
}
