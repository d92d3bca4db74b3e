import { type ParseArgsConfig, parseArgs } from "node:util";
import { nearest } from "./nearest.ts";
import { print, printError, printOver } from "./terminal.ts";

type Options = NonNullable<ParseArgsConfig["options"]>;

/**
 * Parses the arguments of a command of `package.json`. `--help` prints `usage` and exits; an
 * unknown option exits with one sentence.
 *
 * @param code the exit code for invalid arguments.
 */
export function parseArguments<const O extends Options, P extends boolean = false>(
  usage: string | (() => string),
  options: O,
  { allowPositionals = false as P, code = 1, args = process.argv.slice(2) } = {},
) {
  const config = {
    args,
    options: { ...options, help: { type: "boolean", short: "h" } },
    allowPositionals,
  } as const;
  try {
    const { values, positionals } = parseArgs<typeof config>(config);
    const { help } = values as { help?: boolean };
    // With other arguments, as in `npm run platform -- METHOD --help`, the command prints the help itself.
    if (!help || positionals.length > 0) return { values, positionals };
  } catch (error) {
    const [complaint = ""] = (error as Error).message.split(". ");
    const [, typed = ""] = /Unknown option '--?([\w-]+)/.exec(complaint) ?? [];
    const name = typed && nearest(typed, Object.keys(config.options));
    printError(`${complaint}; ${name ? `did you mean --${name}? ` : ""}--help shows the usage`);
    process.exit(code);
  }
  print(typeof usage === "string" ? usage : usage());
  process.exit(0);
}

/** @throws Error that names the option, unless its value is an integer of at least `min`. */
export function parseCount(option: string, text: string | undefined, min = 1): number {
  if (text !== undefined && /^\d{1,9}$/.test(text) && Number(text) >= min) return Number(text);
  throw new Error(`${option}: expected a whole number of at least ${min}; --help shows the usage`);
}

/** Parses the values of `--header`, such as `X-Token: abc`, to names and values. @throws Error for an invalid one. */
export function parseHeaders(given: string[] = []): Record<string, string> {
  const pairs = given.map((line): [string, string] => {
    const [, name = "", value = ""] = /^([^:]+):\s*(.*)$/.exec(line) ?? [];
    try {
      new Headers([[name, value]]);
    } catch {
      throw new Error('--header: expected a name and a value, such as "X-Token: abc"');
    }
    return [name, value];
  });
  return Object.fromEntries(pairs);
}

/** Prints in one sentence why a command failed, instead of Node's stack trace. */
export function fail(error: unknown): never {
  printError(error instanceof Error ? error.message : String(error));
  process.exit(1);
}

/**
 * Shows progress on standard error, with the seconds since the start; standard output is for results. A
 * terminal shows a single line, which `""` clears; elsewhere each text is a line, unless another was
 * written, or the command started, less than `everyMs` ago.
 */
export function openSteps(): (text: string, everyMs?: number) => void {
  let last = performance.now();
  return (text, everyMs = 0) => {
    const now = performance.now();
    const line = text && `${Math.round(now / 1000)} s  ${text}`;
    if (process.stderr.isTTY) printOver(line && `${line}…`);
    else if (line && now - last >= everyMs) {
      last = now;
      printError(line);
    }
  };
}
