/** What to do with a line of a server's output. */
export interface LogLine {
  /** The text to log; null to drop the line. */
  text: string | null;
  /** Whether to show it in the terminal too. */
  isNews: boolean;
}

const UNCAUGHT = /\[ERROR\] Uncaught /;
const HUNG = /\[ERROR\] Uncaught Error: .*code had hung/;
/** The message of a refused input begins with where it is wrong, such as `leads[0].reference: `. */
const REFUSED = /\[ERROR\] Uncaught Error: (?<refusal>[a-z][\w.[\]]*: .*?)(?: Error)?$/;
const STACK = /^(\s+at .*|\s*)$/;

/**
 * Makes a filter for a server's lines, without colours, that drops false alarms. When a Platform method
 * throws, its caller gets the error. If the caller is another process, the runtime also
 *
 * - logs the error as uncaught, with a stack, which does not help if the input was invalid;
 * - logs afterwards that the Worker's code had hung, because the session ended with a call open.
 */
export function openLogLines(): (line: string) => LogLine {
  let hasThrown = false;
  let isAfterNoise = false;
  return (line) => {
    if (isAfterNoise && STACK.test(line)) return { text: null, isNews: false };
    const isFalseAlarm = HUNG.test(line) && hasThrown;
    const refusal = REFUSED.exec(line)?.groups?.refusal;
    if (UNCAUGHT.test(line)) hasThrown = !HUNG.test(line);
    isAfterNoise = isFalseAlarm || refusal !== undefined;
    if (isFalseAlarm) return { text: null, isNews: false };
    if (refusal !== undefined) return { text: `refused: ${refusal}`, isNews: true };
    return { text: line, isNews: line.includes("[ERROR]") };
  };
}
