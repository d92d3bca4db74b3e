import { parseArguments } from "../shared/command.ts";
import { selectDeployment } from "../shared/deployment.ts";
import { SECRET_NAMES } from "../shared/secrets.ts";

const USAGE = `npm run deploy -- [--env NAME] [--config FILE]

Deploys the Worker to a Cloudflare account: checks that this version suits what is stored there, creates
its databases and queues, applies migrations, generates missing secrets, uploads the new version, tests
it, and only then gives it the traffic. Run it again for each new version.

  --env NAME     deploy the environment [env.NAME] of wrangler.toml instead of production
  --at-once      give the new version the traffic before it is tested. Needed if the version changes
                 Durable Object classes, if the address is new, or if a proxy removes the request header
                 Cloudflare-Workers-Version-Overrides
  --lost-key ID  deploy although nothing encrypted under this key can be read any more
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
      "at-once": { type: "boolean", default: false },
      "lost-key": { type: "string", multiple: true, default: [] },
      config: { type: "string" },
    },
    { args },
  );
  return {
    atOnce: values["at-once"],
    lostKeys: values["lost-key"],
    ...selectDeployment(values),
  };
}
