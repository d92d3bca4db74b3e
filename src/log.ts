/*
 * To add an error or an alarm: `logError` where it happens, `scripts/alarms/alarms.json` if it is to page an operator,
 * and a section of five lines in `docs/runbook.md`, which `test/node/runbook.test.ts` requires.
 */

/** Fields of a log line. They have our own numbers, ids and names, and never text that a client sent. */
export type LogFields = Record<string, string | number | boolean | null | undefined> & {
  // Ids have the names that operations and the docs use: `webhookId`, `eventId`, `keyId`.
  [Other in "subscription" | "webhook" | "delivery" | "workspace" | "key" | "email"]?: never;
};

/** Logs one line of JSON. */
export function log(event: string, fields: LogFields = {}): void {
  console.log(JSON.stringify({ event, ...fields }));
}

/** Logs one line of JSON about an error that an operator should examine. */
export function logError(event: string, error: unknown, fields: LogFields = {}): void {
  console.error(JSON.stringify({ event, ...fields, ...describe(error) }));
}

const ADDRESSES = /[^\s"<(]+@[^\s">)]+/g;

/**
 * Describes an error without personal data. Drizzle's messages contain the query's parameters, so only the message of
 * the cause, the database's own error, is logged. A mail server's message may contain the recipient's e-mail address,
 * which is removed.
 */
function describe(error: unknown): LogFields {
  if (!(error instanceof Error)) return { error: typeof error };
  if (error.cause instanceof Error) return describe(error.cause);
  const fromDrizzle = error.message.startsWith("Failed query");
  if (fromDrizzle) return { error: error.name };
  return { error: error.name, message: error.message.replace(ADDRESSES, "…@…") };
}
