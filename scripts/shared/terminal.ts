/**
 * The only way in which the commands write to a terminal. What they show comes from others: names,
 * descriptions, bodies of posts, errors. A terminal would obey the control characters in it, such as
 * those that write to the clipboard or clear the screen.
 */
import { styleText } from "node:util";

// A reader that closes its pipe, as `head` does, has all that it wants. The command still does its work, such as a
// deployment. One that only shows something listens to SIGPIPE, which Node itself ignores.
for (const stream of [process.stdout, process.stderr])
  stream.on("error", (error) => {
    if (!isClosedPipe(error)) throw error;
    process.emit("SIGPIPE", "SIGPIPE");
  });

function isClosedPipe({ code }: NodeJS.ErrnoException): boolean {
  return code === "EPIPE";
}

/**
 * Characters that a terminal executes instead of showing (C0, DEL and C1), and those that reverse the text around them.
 */
const UNPRINTABLE = /[\p{Cc}\p{Bidi_Control}]/gu;
/** The same, apart from line breaks and tabs. */
const UNPRINTABLE_IN_LINES = /(?![\n\t])[\p{Cc}\p{Bidi_Control}]/gu;

/**
 * Makes a text from outside safe to print in one line. Its control characters become escapes like
 * `\n` and `\u001b`, which mean the same in JSON.
 */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, escapeOf);
}

/** Prints lines to standard output, with what a terminal would obey as escapes. */
export function print(lines: string): void {
  // biome-ignore lint/suspicious/noConsole: the one place
  console.log(safeLines(lines));
}

export type Colour = "green" | "red" | "yellow" | "cyan" | "dim" | "bold";

/**
 * Prints a line of parts. A part with a colour has it if standard output is a terminal and `NO_COLOR` is not set.
 */
export function printParts(...parts: (string | [Colour, string])[]): void {
  const shown = parts.map((part) =>
    typeof part === "string" ? printable(part) : styleText(part[0], printable(part[1])),
  );
  // biome-ignore lint/suspicious/noConsole: the one place
  console.log(shown.join(""));
}

/** Like `print`, to standard error. */
export function printError(lines: string): void {
  // biome-ignore lint/suspicious/noConsole: the one place
  console.error(safeLines(lines));
}

/** Like `print`, but at the pace of a pipe's reader. Exits when that closes the pipe. */
export function printSlowly(lines: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(`${safeLines(lines)}\n`, (error) => {
      if (error && isClosedPipe(error)) process.exit();
      return error ? reject(error) : resolve();
    });
  });
}

/** Shows `line` in place of the last line of standard error, which must be a terminal. */
export function printOver(line: string): void {
  process.stderr.write(`\r\x1b[K${printable(line)}`);
}

/** Lines with what a terminal would obey as escapes. */
export function safeLines(lines: string): string {
  return lines.replace(UNPRINTABLE_IN_LINES, escapeOf);
}

function escapeOf(character: string): string {
  const json = JSON.stringify(character).slice(1, -1);
  return json === character ? `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}` : json;
}
