import { randomBytes } from "node:crypto";

/** The secrets that the Worker needs, each a key ring. */
export const SECRET_NAMES = [
  "ENCRYPTION_KEYS",
  "API_KEY_CHECKSUM_KEYS",
  "PORTAL_SIGNING_KEYS",
] as const;

export type SecretName = (typeof SECRET_NAMES)[number];

/** The secrets that a deployment may have. */
export const DEPLOYED_SECRETS = [...SECRET_NAMES, "PLATFORM_KEYS"] as const;
/** Secrets by name: some of those that a deployment may have. */
export type Secrets = Partial<Record<(typeof DEPLOYED_SECRETS)[number], string>>;

/** The environment variables without the secrets of a deployment, which wrangler does not get in this way. */
export function withoutSecrets(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const names: readonly string[] = DEPLOYED_SECRETS;
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !names.includes(name)));
}

/** Creates a secret with one key. @param id the key's id. */
export function makeSecret(id: string): string {
  return `${id}:${randomBytes(32).toString("base64")}`;
}
