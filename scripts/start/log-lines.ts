/** What to do with a line of a server's output. */
export interface LogLine {
  /** The text to log; null to drop the line. */
  text: string | null;
  /** What to show of it in the terminal; null for nothing. */
  news: string | null;
}

const UNCAUGHT = /\[ERROR\] Uncaught /;
const HUNG = /\[ERROR\] Uncaught Error: .*code had hung/;
/** The message of a refused input begins with where it is wrong, such as `leads[0].reference: `. */
const REFUSED = /\[ERROR\] Uncaught Error: (?<refusal>[a-z][\w.[\]]*: .*?)(?: Error)?$/;
/** The host of a webhook does not exist. The Worker logs the attempt as failed. */
const UNRESOLVABLE = /\[ERROR\] e = .*failed to lookup address information/;
const STACK = /^(\s+(at|stack:) .*|\s*)$/;

/**
 * Makes a filter for a server's lines, without colours, that drops false alarms and shows failed
 * attempts to deliver a webhook. When a Platform method throws, its caller gets the error. If the caller
 * is another process, the runtime also
 *
 * - logs the error as uncaught, with a stack, which does not help if the input was invalid;
 * - logs afterwards that the Worker's code had hung, because the session ended with a call open.
 */
export function openLogLines(): (line: string) => LogLine {
  let hasThrown = false;
  let isAfterNoise = false;
  return (line) => {
    const dropped = { text: null, news: null };
    if (isAfterNoise && STACK.test(line)) return dropped;
    const isFalseAlarm = UNRESOLVABLE.test(line) || (HUNG.test(line) && hasThrown);
    const refusal = REFUSED.exec(line)?.groups?.refusal;
    if (UNCAUGHT.test(line)) hasThrown = !HUNG.test(line);
    isAfterNoise = isFalseAlarm || refusal !== undefined;
    if (isFalseAlarm) return dropped;
    if (refusal !== undefined) return { text: `refused: ${refusal}`, news: `refused: ${refusal}` };
    return { text: line, news: line.includes("[ERROR]") ? line : failedAttempt(line) };
  };
}

const REASONS: Record<string, string> = {
  timed_out: "no answer in time",
  unreachable: "no connection, or no such host",
  refused: "its URL is not accepted",
};

/** A failed attempt to deliver a webhook, in words; null for any other line. */
function failedAttempt(line: string): string | null {
  if (!line.startsWith('{"event":"attempt_failed"')) return null;
  const { eventId, host, attempt, outcome, status } = JSON.parse(line);
  return `${eventId} was not delivered to ${host}: ${status ?? REASONS[outcome]}, attempt ${attempt}`;
}
