import { parseArguments, parseCount } from "../shared/command.ts";
import { selectDeployment } from "../shared/deployment.ts";
import { SECRET_NAMES } from "../shared/secrets.ts";

const USAGE = `npm run deploy -- [--env NAME] [--dry-run] [--config FILE]

Deploys the Worker to a Cloudflare account: checks that this version suits what is stored there, creates
its databases and queues, applies migrations, generates missing secrets, uploads the new version, tests
it, and only then gives it the traffic. Run it again for each new version.

  --env NAME     deploy the environment [env.NAME] of wrangler.toml instead of production
  --dry-run      check the account, show what would be done, and change nothing
  --at-once      give the new version the traffic before it is tested: Cloudflare requires that if the
                 version changes Durable Object classes, and the test does at a new address, and if a
                 proxy removes headers
  --secrets-copy FILE
                 a file for a copy of the secrets that are generated (~/WORKER.secrets.txt); if it has
                 some from a deployment that failed, those are used
  --lost-key ID  deploy although nothing encrypted under this key can be read any more
  --wait SECONDS how long the new version may take to respond as expected (60)
  --config FILE  use another configuration than wrangler.toml

  CLOUDFLARE_API_TOKEN, CLOUDFLARE_ACCOUNT_ID
                 environment variables: what wrangler needs where it cannot ask
  ${SECRET_NAMES.join(", ")}, PLATFORM_KEYS
                 secrets to deploy instead of those that the Worker has
`;

/** The options of a deployment. */
export type Options = ReturnType<typeof parseOptions>;

/** Parses the arguments of `npm run deploy`; ends the process if they are wrong, or ask for help. */
export function parseOptions(args: string[]) {
  const { values } = parseArguments(
    USAGE,
    {
      env: { type: "string" },
      "dry-run": { type: "boolean", default: false },
      "at-once": { type: "boolean", default: false },
      "secrets-copy": { type: "string" },
      "lost-key": { type: "string", multiple: true, default: [] },
      wait: { type: "string", default: "60" },
      config: { type: "string" },
    },
    { args },
  );
  return {
    dryRun: values["dry-run"],
    atOnce: values["at-once"],
    secretsCopy: values["secrets-copy"],
    lostKeys: values["lost-key"],
    waitSeconds: parseCount("--wait", values.wait),
    ...selectDeployment(values),
  };
}
