/**
 * Sends test deliveries to a webhook receiver and reports whether it handles them correctly:
 *
 *     WEBHOOK_SECRET=whsec_… npm run check-receiver -- https://hooks.example.com/automations
 *
 * Exits 0 if all checks passed, 1 if not, 2 if it was called incorrectly. The docs page offers it as a
 * single file, which `scripts/assets.ts` bundles.
 */
import { isCancel, password } from "@clack/prompts";
import { parseTarget, type TargetFault } from "../../src/endpoints/target.ts";
import { parseArguments, parseHeaders } from "../shared/command.ts";
import { type Colour, print, printError, printParts } from "../shared/terminal.ts";
import { CHECKS, checkReceiver, type Finding, type Result } from "./checks.ts";
import { adviceFor } from "./connection.ts";

const COMMAND =
  process.env.npm_lifecycle_event === "check-receiver"
    ? "npm run check-receiver --"
    : "node check-receiver.mjs";

const USAGE = `${COMMAND} URL [--local] [--header "NAME: VALUE"]… [--insecure]

Sends 11 test deliveries to URL, labelled in the header X-Service-Test, and reports whether your
handler treats them correctly. 6 of them are valid: a handler that does not skip deliveries with
this header processes 5 invented leads. If your handler rejects the first delivery, some more
follow, to find out why.

  --local         allow http and private addresses
  --header H      adds a header to each delivery, such as "X-Token: abc" for a gateway; repeatable.
                  "X-Service-Webhook: whk_…" names the webhook, if your handler looks up its
                  secret by that; otherwise the deliveries name one that does not exist
  --insecure      accepts any certificate, such as that of a development server
  WEBHOOK_SECRET  environment variable: the secret that your handler verifies with, as returned by
                  POST /v1/webhooks; if it is not set, the terminal asks for it
`;

const FAULTS: Record<TargetFault, string> = {
  invalid_url: "Not a valid URL",
  https_required: "URL must start with https://; --local also allows http://",
  credentials_not_allowed: "URL must not contain a user name or password",
  private_address: "URL is a private or local address; --local allows it",
};

const COLOURS = {
  passed: "green",
  failed: "red",
  unclear: "yellow",
  "not tested": "yellow",
} as const satisfies Record<Result, Colour>;

const COLUMNS = ["check", "sent", "expected", "got", "result"] as const;
const WIDEST_GOT = "TLS: certificate for another name";

class UsageError extends Error {}

try {
  const { url, headers } = parseCall();
  process.exitCode = await checkAndPrint(url, await askForSecret(), headers);
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  printError(error.message);
  process.exitCode = 2;
}

/** Parses the URL of the receiver to check, and the headers that it needs. */
function parseCall(): { url: string; headers: Record<string, string> } {
  const { values, positionals } = parseArguments(
    USAGE,
    {
      secret: { type: "string" },
      local: { type: "boolean", default: false },
      header: { type: "string", multiple: true },
      insecure: { type: "boolean", default: false },
    },
    { allowPositionals: true, code: 2 },
  );
  if (values.secret !== undefined)
    throw new UsageError(
      "The secret is not accepted on the command line, where others can read it: set WEBHOOK_SECRET",
    );
  const [url, ...rest] = positionals;
  if (url === undefined) throw new UsageError("URL is missing; --help shows the usage");
  if (rest.length > 0) throw new UsageError(`expected one URL, got ${positionals.length}`);
  const target = parseTarget(url, values.local);
  if (typeof target === "string") throw new UsageError(FAULTS[target]);
  // Node's `fetch` reads this for each connection, and has no option for it. Its warning would repeat what was asked for.
  if (values.insecure) {
    process.removeAllListeners("warning");
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  }
  try {
    return { url, headers: parseHeaders(values.header) };
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

/** Reads the secret that signs deliveries from the environment or the terminal. */
async function askForSecret(): Promise<string> {
  const { WEBHOOK_SECRET } = process.env;
  if (WEBHOOK_SECRET) return parseSecret("WEBHOOK_SECRET", WEBHOOK_SECRET);
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new UsageError("Set WEBHOOK_SECRET to the secret that POST /v1/webhooks returned");
  const answer = await password({ message: "The secret of the webhook, whsec_…" });
  if (isCancel(answer)) throw new UsageError("Cancelled: nothing was sent");
  return parseSecret("The secret", answer ?? "");
}

function parseSecret(name: string, secret: string): string {
  if (/^whsec_[A-Za-z0-9+/]{43}=$/.test(secret)) return secret;
  throw new UsageError(`${name} must be whsec_ and 44 characters of base64`);
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
