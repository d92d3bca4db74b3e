/** What a log line may hold: figures, identifiers and names of ours, never what a client wrote. */
export type LogFields = Record<string, string | number | boolean | null | undefined>;

/** Writes one line of JSON. */
export function log(event: string, fields: LogFields = {}): void {
  console.log(JSON.stringify({ event, ...fields }));
}

/** Writes one line of JSON about something that an operator should look into. */
export function logError(event: string, error: unknown, fields: LogFields = {}): void {
  console.error(JSON.stringify({ event, ...fields, ...describe(error) }));
}

const ADDRESSES = /[^\s"<(]+@[^\s">)]+/g;

/**
 * An error without personal data. Drizzle writes a query's parameters into its message, so only the
 * message of its cause, the database's own, is kept; a mail server's may name whom it would not serve.
 */
function describe(error: unknown): LogFields {
  if (!(error instanceof Error)) return { error: typeof error };
  if (error.cause instanceof Error) return describe(error.cause);
  const fromDrizzle = error.message.startsWith("Failed query");
  if (fromDrizzle) return { error: error.name };
  return { error: error.name, message: error.message.replace(ADDRESSES, "…@…") };
}
