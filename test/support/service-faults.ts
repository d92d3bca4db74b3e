import { D1_ERRORS } from "../../src/db/errors.ts";

/** One way in which a call to D1 fails. */
export interface Fault {
  message: string;
  /** `after`: the service did what was asked, and only its reply is lost. */
  moment: "before" | "after";
}

/** Errors of a database that was not reached. */
const UNREACHED = /while starting up|Cannot resolve/;

/** Every error of D1's table, before the commit and, if possible, after it. */
export const D1_FAULTS: readonly Fault[] = D1_ERRORS.flatMap(({ message, fault }) => {
  const mayBeCommitted = fault === "transient" && !UNREACHED.test(message);
  const moments = mayBeCommitted ? (["before", "after"] as const) : (["before"] as const);
  return moments.map((moment) => ({ message: `D1_ERROR: ${message}`, moment }));
});

/** The error of a fault. */
export function toError({ message }: Fault): Error {
  return new Error(`${message} [injected]`);
}
