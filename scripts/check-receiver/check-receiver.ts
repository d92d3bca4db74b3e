/**
 * Sends test deliveries to a webhook receiver and reports whether it handles them correctly:
 *
 *     WEBHOOK_SECRET=whsec_… npm run check-receiver -- https://hooks.example.com/automations
 *
 * Exits 0 if all checks passed, 1 if not, 2 if it was called incorrectly. The docs page offers it as a
 * single file, which `scripts/assets.ts` bundles.
 */
import { type Colour, print, printError, printParts } from "../shared/terminal.ts";
import { askForSecret, parseCall, UsageError } from "./call.ts";
import { CHECKS, checkReceiver, type Finding, type Result } from "./checks.ts";
import { adviceFor } from "./connection.ts";

const COLOURS = {
  passed: "green",
  failed: "red",
  unclear: "yellow",
  "not tested": "yellow",
} as const satisfies Record<Result, Colour>;

const COLUMNS = ["check", "sent", "expected", "got", "result"] as const;
const WIDEST_GOT = "TLS: certificate for another name";

try {
  const { url, headers, isInsecure } = parseCall(process.argv.slice(2));
  // Node's `fetch` reads this for each connection, and has no option for it. Its warning would repeat what was asked for.
  if (isInsecure) {
    process.removeAllListeners("warning");
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  }
  process.exitCode = await checkAndPrint(url, await askForSecret(), headers);
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  printError(error.message);
  process.exitCode = 2;
}

/** Prints a row of the table as each result comes in, then a summary. @returns the exit code. */
async function checkAndPrint(
  url: string,
  secret: string,
  headers: Record<string, string>,
): Promise<number> {
  const widths = COLUMNS.map((column) => {
    const cells =
      column === "got" ? [WIDEST_GOT] : column === "result" ? [] : CHECKS.map((c) => c[column]);
    return Math.max(column.length, ...cells.map(({ length }) => length));
  });
  const row = (cells: readonly string[], result: string, colour: Colour | null = null) =>
    printParts(
      [...cells.map((cell, i) => cell.padEnd(widths[i] ?? 0)), ""].join("  "),
      colour ? [colour, result] : result,
    );

  row(COLUMNS.slice(0, -1), "result");
  row(
    widths.slice(0, -1).map((width) => "-".repeat(width)),
    "-".repeat("not tested".length),
  );
  const findings: Finding[] = [];
  for await (const finding of checkReceiver(url, secret, headers)) {
    findings.push(finding);
    const { check, sent, expected, got, result } = finding;
    row([check, sent, expected, got], result, COLOURS[result]);
  }
  print(`\n${summarize(findings)}`);
  const advice = adviceFor(findings[0]?.got ?? "");
  if (advice) print(advice);
  for (const { check, consequence, result } of findings)
    if (result === "failed") print(`- ${check}: ${consequence}.`);
  if (findings.some(({ result }) => result === "unclear"))
    print(
      "Unclear: your handler also rejects valid deliveries, responds with 429, or does not respond.",
    );
  if (findings[0]?.result === "failed" && !advice)
    print(
      "Does it have this secret, and is its clock right? Does it look up its secret by X-Service-Webhook, or does a gateway in front of it require a header? --header sends either.",
    );
  print(
    "Not testable from outside: whether the repeated event is processed only once, and whether signatures are compared in constant time.",
  );
  return findings.every(({ result }) => result === "passed") ? 0 : 1;
}

/** Counts the checks by result, in one line. */
function summarize(findings: Finding[]): string {
  const count = (result: Result) => findings.filter((f) => f.result === result).length;
  const others = (["failed", "unclear", "not tested"] as const)
    .filter((result) => count(result) > 0)
    .map((result) => `, ${count(result)} ${result}`);
  return `${count("passed")} of ${findings.length} checks passed${others.join("")}.`;
}
