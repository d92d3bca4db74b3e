import { join, resolve } from "node:path";
import { ROOT } from "./checkout.ts";

/** A deployment that a command acts on. */
export interface Deployment {
  /** The environment of wrangler.toml; undefined for production. */
  environment: string | undefined;
  /** The path of the configuration. */
  configFile: string;
  /** Arguments of every wrangler call. */
  everyCall: string[];
  /** The arguments that select the deployment in `npm run platform`. */
  selection: string;
}

/** Selects the deployment that the options `--env` and `--config` of a command name. */
export function selectDeployment({ env, config }: { env?: string; config?: string }): Deployment {
  const configFile = resolve(config ?? join(ROOT, "wrangler.toml"));
  return {
    environment: env,
    configFile,
    everyCall: [
      ...(config ? [`--config=${configFile}`] : []),
      // Without this argument, CLOUDFLARE_ENV would choose the environment.
      `--env=${env ?? ""}`,
    ],
    selection: env ? `--env ${env}` : "--remote",
  };
}
