import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./checkout.ts";

/** The variables that tests and benchmarks rely on, so that a deployment may set its own in wrangler.toml. */
export const TEST_VARS = {
  JURISDICTION: "eu",
  QUOTA_REQUESTS: 600,
  QUOTA_WINDOW_SECONDS: 60,
  AUTH_FAILURES: 20,
  AUTH_FAILURE_WINDOW_SECONDS: 300,
  SERVED_ROUTES: "automations,automations.patch,automations.crm_source,leads,runs,webhooks",
  EVENTS_KEPT_DAYS: 30,
  EVENTS_KEPT_MAX: 300_000,
  DATABASES_CLOSED: "",
  EMAIL_FROM: "api@example.com",
  SUPPORT_EMAIL: "api@example.com",
  SUPPORT_URL: "https://example.com/support",
  DNS_OVER_HTTPS_URL: "",
  PORTAL: "on",
  PORTAL_ORIGIN: "",
  PORTAL_NAME: "",
  PORTAL_COLOR: "",
};

/**
 * Replaces what a deployment sets in its wrangler.toml (docs/admin.md, Day one) by what tests rely on: its
 * variables, its addresses, the ids of its databases and those beside `DB`, in all environments.
 */
export function withTestSettings(toml: string): string {
  const settings = toml
    .replace(/^ *(routes|route|workers_dev|database_id|account_id) *= *(\[[^\]]*\]|.*)\n/gm, "")
    .replace(/^\[\[(env\.\w+\.)?d1_databases\]\]\nbinding *= *"DB_\d+"\n([^[\n].*\n|\n)*/gm, "")
    .replace(/^\[env\.\w+\]\n/gm, "$&routes = []\nworkers_dev = true\n")
    .replace(/^preview_urls/m, "workers_dev = true\n$&");
  return settings.replace(/^([A-Z_]+) *= .*$/gm, (line, name: string) =>
    name in TEST_VARS
      ? `${name} = ${JSON.stringify(TEST_VARS[name as keyof typeof TEST_VARS])}`
      : line,
  );
}

/** Makes the paths of a wrangler.toml of this checkout absolute, for a copy elsewhere. */
export function withAbsolutePaths(toml: string): string {
  return toml
    .replace('main = "', `$&${ROOT}/`)
    .replace('directory = "', `$&${ROOT}/`)
    .replaceAll('migrations_dir = "', `$&${ROOT}/`);
}

/** Writes wrangler.toml with the settings for tests to a file of its own. @returns its path. */
export function writeTestConfiguration(): string {
  const folder = join(ROOT, "dist/test");
  const file = join(folder, "wrangler.toml");
  mkdirSync(folder, { recursive: true });
  const toml = withTestSettings(readFileSync(join(ROOT, "wrangler.toml"), "utf8"));
  // Another process may read the file in the meantime.
  writeFileSync(`${file}.${process.pid}`, withAbsolutePaths(toml));
  renameSync(`${file}.${process.pid}`, file);
  return file;
}
