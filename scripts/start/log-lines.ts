/** A line of a server's output, as it is to be written; null when it is left out. */
export interface LogLine {
  text: string | null;
  /** Whether it belongs into the terminal too. */
  isNews: boolean;
}

const UNCAUGHT = /\[ERROR\] Uncaught /;
const HUNG = /\[ERROR\] Uncaught Error: .*code had hung/;
/** The message of a refused input begins with where it is wrong, such as `leads[0].reference: `. */
const REFUSED = /\[ERROR\] Uncaught Error: (?<refusal>[a-z][\w.[\]]*: .*?)(?: Error)?$/;
const STACK = /^(\s+at .*|\s*)$/;

/**
 * Makes a reader of a server's lines, without colours, that leaves out false alarms. When a Platform
 * method throws, its caller is told why. If the caller is another process, the runtime also
 *
 * - calls the error uncaught, with a stack, which is of no use where an input was wrong;
 * - says afterwards that the Worker had hung: the session has ended while a call on it was open.
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
