/** Fields of a log line: our own numbers, ids and names, never text that a client sent. */
export type LogFields = Record<string, string | number | boolean | null | undefined> & {
  // Ids are called what operations and the docs call them: `webhookId`, `eventId`, `keyId`.
  [Other in "subscription" | "webhook" | "delivery" | "workspace" | "key" | "email"]?: never;
};

/** Logs one line of JSON. */
export function log(event: string, fields: LogFields = {}): void {
  console.log(JSON.stringify({ event, ...fields }));
}

/** Logs one line of JSON about an error that an operator should look into. */
export function logError(event: string, error: unknown, fields: LogFields = {}): void {
  console.error(JSON.stringify({ event, ...fields, ...describe(error) }));
}

const ADDRESSES = /[^\s"<(]+@[^\s">)]+/g;

/**
 * Describes an error without personal data. Drizzle's messages contain the query's parameters, so only
 * the message of the cause, the database's own error, is kept. A mail server's message may contain the
 * recipient's address, which is removed.
 */
function describe(error: unknown): LogFields {
  if (!(error instanceof Error)) return { error: typeof error };
  if (error.cause instanceof Error) return describe(error.cause);
  const fromDrizzle = error.message.startsWith("Failed query");
  if (fromDrizzle) return { error: error.name };
  return { error: error.name, message: error.message.replace(ADDRESSES, "…@…") };
}
