import { join, resolve } from "node:path";
import { ROOT } from "../shared/checkout.ts";
import { parseArguments, parseCount } from "../shared/command.ts";
import { SECRET_NAMES } from "../shared/secrets.ts";

const USAGE = `npm run deploy -- [--env NAME] [--dry-run] [--rollback VERSION] [--config FILE]

Deploys the Worker to a Cloudflare account: checks that this version suits what is stored there, creates
its databases and queues, applies migrations, asks for the encryption key or generates one, generates
the other secrets, deploys, and tests the result. Run it again for each new version.

  --env NAME     deploy the environment [env.NAME] of wrangler.toml instead of production
  --dry-run      check the account, if you are logged in, and build the Worker; show what would be
                 done, and change nothing
  --rollback VERSION
                 go back to an earlier version, unless the databases have moved on; the versions:
                 npx wrangler versions list
  --lost-key ID  deploy although nothing encrypted under this key can be read any more
  --wait SECONDS how long the new version may take to answer well (60)
  --config FILE  use another configuration than wrangler.toml

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID, ${SECRET_NAMES.join(", ")}
                 environment variables: what it needs when there is no terminal to ask in
`;

/** What a deployment is to do. */
export type Options = ReturnType<typeof parseOptions>;

/**
 * Parses the arguments of `npm run deploy`; ends the process if they are wrong, or ask for help.
 *
 * @param interactive whether there is a terminal to ask in.
 */
export function parseOptions(args: string[], interactive: boolean) {
  const { values } = parseArguments(
    USAGE,
    {
      env: { type: "string" },
      "dry-run": { type: "boolean", default: false },
      rollback: { type: "string" },
      "lost-key": { type: "string", multiple: true, default: [] },
      wait: { type: "string", default: "60" },
      config: { type: "string" },
    },
    { args },
  );
  const configFile = resolve(values.config ?? join(ROOT, "wrangler.toml"));
  return {
    interactive,
    dryRun: values["dry-run"],
    rollback: values.rollback,
    lostKeys: values["lost-key"],
    environment: values.env,
    configFile,
    waitSeconds: parseCount("--wait", values.wait),
    /** Arguments of every wrangler call. */
    everyCall: [
      ...(values.config ? [`--config=${configFile}`] : []),
      // Without it, CLOUDFLARE_ENV would decide.
      `--env=${values.env ?? ""}`,
    ],
    /** What selects the deployment in other commands. */
    selection: values.env ? `--env ${values.env}` : "--remote",
  };
}
