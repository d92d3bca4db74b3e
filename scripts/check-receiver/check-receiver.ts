/**
 * Sends test deliveries to a receiver of webhooks and reports which duties of one it fulfils:
 *
 *     WEBHOOK_SECRET=whsec_… npm run check-receiver -- https://hooks.example.com/automations
 *
 * Exits 0 when every duty is fulfilled, 1 when one is not, 2 when it was called wrongly. The docs
 * page offers it as one file, which `scripts/assets.ts` makes of this one.
 */
import { styleText } from "node:util";
import { isCancel, password } from "@clack/prompts";
import { type TargetFault, targetFault } from "../../src/webhooks/target.ts";
import { parseArguments } from "../shared/command.ts";
import { adviceFor } from "./connection.ts";
import { checkReceiver, DUTIES, type Finding, type Verdict } from "./duties.ts";

const COMMAND =
  process.env.npm_lifecycle_event === "check-receiver"
    ? "npm run check-receiver --"
    : "node check-receiver.mjs";

const USAGE = `${COMMAND} URL [--local]

Sends eight test deliveries to URL, each with a header X-Service-Test that says what it is, and
reports which duties of a receiver it fulfils. Three of them are right: the receiver will process
two invented leads.

  --local         admits http and private addresses
  WEBHOOK_SECRET  in the environment: what the receiver verifies with, the secret that
                  POST /v1/webhooks answered; without it, a terminal asks for it
`;

const FAULTS: Record<TargetFault, string> = {
  invalid_url: "URL is none that could be posted to",
  https_required: "URL must begin with https://; with --local, http:// is admitted too",
  credentials_not_allowed: "URL must hold no user name and no password",
  private_address: "URL leads to a private or local address; --local admits it",
};

const COLOURS = {
  fulfilled: "green",
  broken: "red",
  unclear: "yellow",
  "not tested": "yellow",
} as const satisfies Record<Verdict, string>;

const COLUMNS = ["duty", "sent", "expected", "came", "verdict"] as const;
const WIDEST_CAME = "TLS: certificate of another name";

class UsageError extends Error {}

try {
  process.exitCode = await report(readUrl(), await readSecret());
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}

/** The receiver to check. */
function readUrl(): string {
  const { values, positionals } = parseArguments(
    USAGE,
    { secret: { type: "string" }, local: { type: "boolean", default: false } },
    { allowPositionals: true, code: 2 },
  );
  if (values.secret !== undefined)
    throw new UsageError(
      "The secret is not taken from the command line, where others can read it: set WEBHOOK_SECRET",
    );
  const [url, ...rest] = positionals;
  if (url === undefined) throw new UsageError("URL is missing; --help shows the usage");
  if (rest.length > 0) throw new UsageError(`one URL is expected, not ${positionals.length}`);
  const fault = targetFault(url, values.local);
  if (fault !== null) throw new UsageError(FAULTS[fault]);
  return url;
}

/** What deliveries are signed with, from the environment, or asked for where somebody sits. */
async function readSecret(): Promise<string> {
  const { WEBHOOK_SECRET } = process.env;
  if (WEBHOOK_SECRET) return checked("WEBHOOK_SECRET", WEBHOOK_SECRET);
  if (!process.stdin.isTTY || !process.stdout.isTTY)
    throw new UsageError("Set WEBHOOK_SECRET to the secret that POST /v1/webhooks answered");
  const answer = await password({ message: "The secret of the subscription, whsec_…" });
  if (isCancel(answer)) throw new UsageError("Given up: nothing was sent");
  return checked("The secret", answer ?? "");
}

function checked(name: string, secret: string): string {
  if (/^whsec_[A-Za-z0-9+/]{43}=$/.test(secret)) return secret;
  throw new UsageError(`${name} must be whsec_ and 44 characters of base64, as it was shown`);
}

/** Prints the table, row by row as the answers come, and what follows from it; the exit code. */
async function report(url: string, secret: string): Promise<number> {
  const widths = COLUMNS.map((column) => {
    const cells =
      column === "came" ? [WIDEST_CAME] : column === "verdict" ? [] : DUTIES.map((d) => d[column]);
    return Math.max(column.length, ...cells.map(({ length }) => length));
  });
  const row = (cells: readonly string[], verdict: string) =>
    console.log([...cells.map((cell, i) => cell.padEnd(widths[i] ?? 0)), verdict].join("  "));

  row(COLUMNS.slice(0, -1), "verdict");
  row(
    widths.slice(0, -1).map((width) => "-".repeat(width)),
    "-".repeat("fulfilled".length),
  );
  const findings: Finding[] = [];
  for await (const finding of checkReceiver(url, secret)) {
    findings.push(finding);
    const { duty, sent, expected, came, verdict } = finding;
    row([duty, sent, expected, came], styleText(COLOURS[verdict], verdict));
  }
  console.log(`\n${count(findings)}`);
  const advice = adviceFor(findings[0]?.came ?? "");
  if (advice) console.log(advice);
  for (const { duty, consequence, verdict } of findings)
    if (verdict === "broken") console.log(`- ${duty}: ${consequence}.`);
  if (findings.some(({ verdict }) => verdict === "unclear"))
    console.log(
      "Unclear: it refuses what is right as well (is the secret its own?), answers 429, or does not answer.",
    );
  console.log(
    "Not to be seen from outside: whether the repeated event was processed once, and whether signatures are compared in constant time.",
  );
  return findings.every(({ verdict }) => verdict === "fulfilled") ? 0 : 1;
}

/** How many duties have each verdict; what was not tested counts for nothing else. */
function count(findings: Finding[]): string {
  const tally = (verdict: Verdict) => findings.filter((f) => f.verdict === verdict).length;
  const others = (["broken", "unclear", "not tested"] as const)
    .filter((verdict) => tally(verdict) > 0)
    .map((verdict) => `, ${tally(verdict)} ${verdict}`);
  return `${tally("fulfilled")} of ${findings.length} duties fulfilled${others.join("")}.`;
}
