import { isMethod } from "../../src/platform/operations.ts";
import { parseArguments } from "../shared/command.ts";
import { selectDeployment } from "../shared/deployment.ts";

/** The value of `--skip` for the rows that are put back. */
export const SETTINGS = "settings";

const USAGE = `npm run restore -- --timestamp TIME [--database DB_2] [--env NAME] [--skip NAME]... [--yes]

Restores a database to an earlier time, at most 30 days ago. Leads, runs, automations and deliveries go back to
that time. Workspaces, API keys, webhooks and the audit trail stay as they are now. Whatever was revoked,
deleted or erased since then is revoked, deleted or erased again. Shows what it will do, and asks. If it fails,
run it again. It does not repeat a restore that has finished.

  --timestamp TIME  such as 2026-11-01T12:00:00Z
  --database NAME   the binding of the database (DB)
  --skip NAME       do not repeat calls of this method of the Platform API, such as eraseWorkspace, if they
                    are the damage; "settings": do not put back rows of workspaces, keys and webhooks
  --yes             do not ask
  --env NAME        the environment [env.NAME] of wrangler.toml instead of production
  --config FILE     use another configuration than wrangler.toml

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID
                    environment variables: what wrangler needs where it cannot ask
`;

/** The options of a restore. */
export type Options = ReturnType<typeof parseOptions>;

const KEPT_DAYS = 30;

/** Parses the arguments of `npm run restore`. @throws Error if the time or a name is not valid. */
export function parseOptions(args: string[]) {
  const { values } = parseArguments(
    USAGE,
    {
      timestamp: { type: "string" },
      database: { type: "string", default: "DB" },
      skip: { type: "string", multiple: true, default: [] },
      yes: { type: "boolean", default: false },
      env: { type: "string" },
      config: { type: "string" },
    },
    { args },
  );
  for (const name of values.skip)
    if (name !== SETTINGS && !isMethod(name)) throw new Error(`--skip ${name}: no such method`);
  return {
    at: parseTime(values.timestamp),
    database: values.database,
    skip: values.skip,
    yes: values.yes,
    ...selectDeployment(values),
  };
}

function parseTime(text = ""): Date {
  const at = new Date(text);
  if (!/^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(text) || Number.isNaN(at.getTime()))
    throw new Error("--timestamp: a time such as 2026-11-01T12:00:00Z is expected");
  const days = (Date.now() - at.getTime()) / 86_400_000;
  if (days < 0 || days > KEPT_DAYS)
    throw new Error(`--timestamp: a time in the last ${KEPT_DAYS} days is expected`);
  return at;
}
