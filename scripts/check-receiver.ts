/**
 * Sends test deliveries to a receiver of webhooks and reports which duties of one it fulfils:
 *
 *     npm run check-receiver -- https://hooks.example.com/automations --secret whsec_…
 *
 * `--local` admits http and private addresses. Exits 0 when every duty is fulfilled, 1 when one is
 * not, 2 when it was called wrongly.
 */
import { parseArgs, styleText } from "node:util";
import { type TargetFault, targetFault } from "../src/delivery/target.ts";
import { checkReceiver, DUTIES, type Finding, type Verdict } from "./receiver-duties.ts";

const USAGE = `npm run check-receiver -- URL --secret whsec_… [--local]

Sends eight test deliveries to URL, each with a header X-Service-Test that says what it is, and
reports which duties of a receiver it fulfils. Three of them are right: the receiver will process
invented leads.

  --secret  what the receiver verifies with: the secret that POST /v1/webhooks answered
  --local   admits http and private addresses`;

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
  "not sent": "yellow",
} as const satisfies Record<Verdict, string>;

const COLUMNS = ["duty", "sent", "expected", "came", "verdict"] as const;
const WIDEST_ANSWER = "204 in 1000 ms, 204 in 1000 ms";

class UsageError extends Error {}

try {
  const call = readCall();
  if (call === null) console.log(USAGE);
  else process.exitCode = await report(call.url, call.secret);
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}

/** What is asked for; `null` when it is help. */
function readCall(): { url: string; secret: string } | null {
  const { values, positionals } = parse();
  if (values.help) return null;
  const [url, ...rest] = positionals;
  if (url === undefined) throw new UsageError("URL is missing; --help shows the usage");
  if (rest.length > 0) throw new UsageError(`one URL is expected, not ${positionals.length}`);
  const fault = targetFault(url, values.local);
  if (fault !== null) throw new UsageError(FAULTS[fault]);
  const { secret } = values;
  if (secret === undefined) throw new UsageError("--secret is missing; --help shows the usage");
  if (!/^whsec_[A-Za-z0-9+/]{43}=$/.test(secret))
    throw new UsageError("--secret must be whsec_ and 44 characters of base64, as it was shown");
  return { url, secret };
}

function parse() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        secret: { type: "string" },
        local: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    });
  } catch (error) {
    throw new UsageError((error as Error).message.split(". ")[0]);
  }
}

/** Prints the table, row by row as the answers come, and what follows from it; the exit code. */
async function report(url: string, secret: string): Promise<number> {
  const widths = COLUMNS.map((column) => {
    const cells =
      column === "came"
        ? [WIDEST_ANSWER]
        : column === "verdict"
          ? []
          : DUTIES.map((d) => d[column]);
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
  const unfulfilled = findings.filter(({ verdict }) => verdict !== "fulfilled");
  console.log(
    `\n${findings.length - unfulfilled.length} of ${findings.length} duties are fulfilled.`,
  );
  for (const { duty, consequence, verdict } of unfulfilled)
    if (verdict === "broken") console.log(`- ${duty}: ${consequence}.`);
  if (unfulfilled.some(({ verdict }) => verdict === "unclear"))
    console.log(
      "Unclear: it refuses what is right as well (is --secret its own?), or answers 429.",
    );
  console.log(
    "Not to be seen from outside: whether the repeated event was processed once, and whether signatures are compared in constant time.",
  );
  return unfulfilled.length === 0 ? 0 : 1;
}
