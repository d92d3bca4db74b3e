/**
 * Runs the tests of the contract, against a Worker that is built and started here or against any deployment.
 *
 *     npm run test:contract -- --url https://api.example.com --platform-key … --receiver https://… --receiver-port 9000
 */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { ROOT } from "./shared/checkout.ts";
import { fail, parseArguments } from "./shared/command.ts";

const USAGE = `npm run test:contract -- [--url URL] [options] [FILE]...

Runs test/contract, all of it or some files: one file for each section of the contract. Without --url, it
builds the Worker and starts it here.

  --url URL             base address of the deployment to test, without /v1
  --platform-key KEY    key for POST URL/platform/METHOD, with which the tests make their workspaces
  --receiver URL        HTTPS address that the deployment can post to, and that leads to --receiver-port
  --receiver-port PORT  port of this machine where the tests receive what is posted
  --partial-url URL     deployment that serves the automations of the social family and no other route
  --failing-key KEY     API key with which GET /automations fails for reasons of the server
  --controls URL        server that makes failures days old and shows e-mails

With --url, the next three are required. Tests that need one of the last three are skipped without it.
The tests create workspaces and leave them there: do not run them against production.
`;

process.on("uncaughtException", fail);
const { values, positionals } = parseArguments(
  USAGE,
  {
    url: { type: "string" },
    "platform-key": { type: "string" },
    receiver: { type: "string" },
    "receiver-port": { type: "string" },
    "partial-url": { type: "string" },
    "failing-key": { type: "string" },
    controls: { type: "string" },
  },
  { allowPositionals: true },
);
if (values.url)
  for (const name of ["platform-key", "receiver", "receiver-port"] as const)
    if (!values[name]) throw new Error(`with --url, --${name} is required; --help shows the usage`);

/** `CONTRACT_PLATFORM_KEY` for `--platform-key`, and so on: test/contract/server/setup.ts reads them. */
const settings = Object.entries(values).map(([option, value]) => [
  `CONTRACT_${option.replaceAll("-", "_").toUpperCase()}`,
  value,
]);
const tests = spawn(
  join(ROOT, "node_modules/.bin/vitest"),
  ["run", "--project", "contract", "--reporter", "tree", ...positionals],
  { cwd: ROOT, stdio: "inherit", env: { ...process.env, ...Object.fromEntries(settings) } },
);
tests.on("exit", (code) => process.exit(code ?? 1));
