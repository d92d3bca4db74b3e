import { z } from "@hono/zod-openapi";
import { parseJson, type Wrangler } from "./wrangler.ts";

/**
 * Cloudflare's API for one account. It is used where wrangler prints its results for people only, and for queries,
 * because wrangler takes seconds to start.
 */
export interface Cloudflare {
  accountId: string;
  /**
   * Calls the API.
   *
   * @param path below the account, such as `/queues`; below the API's root with `//`, such as `//zones`.
   * @param timeoutMs how long the call may take; 30 s when left out.
   * @throws CloudflareError if the API rejects the call.
   */
  call<T>(
    schema: z.ZodType<T>,
    method: string,
    path: string,
    body?: object,
    timeoutMs?: number,
  ): Promise<T>;
}

/** Thrown if the API rejects a call. */
export class CloudflareError extends Error {
  /** The numbers of the errors, as Cloudflare documents them. */
  readonly codes: number[];

  constructor(message: string, codes: number[]) {
    super(message);
    this.codes = codes;
  }
}

/** Cloudflare's numbers for a Worker that does not exist. */
const NO_WORKER = [10007, 10090];

/** @throws the error, unless it says that there is no such Worker: then, `answer` is returned. */
export function orIfNoWorker<T>(error: unknown, answer: T): T {
  if (error instanceof CloudflareError && error.codes.some((code) => NO_WORKER.includes(code)))
    return answer;
  throw error;
}

const Answer = z.object({
  success: z.boolean(),
  errors: z.array(z.object({ code: z.number().optional(), message: z.string() })).nullish(),
  result: z.unknown().optional(),
});
const Credentials = z.union([
  z.object({ token: z.string() }),
  z.object({ key: z.string(), email: z.string() }),
]);
const Accounts = z.array(z.object({ id: z.string() }));
const TIMEOUT_MS = 30_000;

export const NOT_LOGGED_IN =
  "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN";

/**
 * Opens the API with a token.
 *
 * @param env the environment, which may name another address of the API, as for wrangler.
 */
export function openCloudflare(
  accountId: string,
  headers: Record<string, string>,
  env: NodeJS.ProcessEnv,
): Cloudflare {
  const base = env.CLOUDFLARE_API_BASE_URL ?? "https://api.cloudflare.com/client/v4";
  return {
    accountId,
    async call(schema, method, path, body, timeoutMs = TIMEOUT_MS) {
      const below = path.startsWith("//") ? path.slice(1) : `/accounts/${accountId}${path}`;
      const response = await fetch(base + below, {
        method,
        headers: { ...headers, ...(body && { "Content-Type": "application/json" }) },
        ...(body && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(timeoutMs),
      }).catch((error: Error) => {
        const reason = error.cause instanceof Error ? error.cause.message : error.message;
        throw new Error(`Cloudflare cannot be reached: ${reason}`);
      });
      const answer = Answer.safeParse(await response.json().catch(() => null));
      if (answer.data?.success) return schema.parse(answer.data.result);
      const errors = answer.data?.errors ?? [];
      const reasons = errors.map(({ message }) => message).join("; ") || String(response.status);
      throw new CloudflareError(
        `Cloudflare rejects ${method} ${below}: ${reasons}`,
        errors.flatMap(({ code }) => code ?? []),
      );
    },
  };
}

/** Returns the header of an API token. */
export function bearer(token: string): Record<string, string> {
  return { Authorization: `Bearer ${token}` };
}

/**
 * Opens the API as the user who is logged in to wrangler, or whose token is in the environment.
 *
 * @param configured the account that the configuration names, which wrangler prefers to that of the environment.
 * @returns null if nobody is logged in.
 * @throws Error if there are several accounts, and nothing chooses one.
 */
export async function findCloudflare(
  wrangler: Wrangler,
  env: NodeJS.ProcessEnv,
  configured: string | undefined,
): Promise<Cloudflare | null> {
  // Wrangler would return the same token, but takes seconds to start.
  const headers = env.CLOUDFLARE_API_TOKEN
    ? bearer(env.CLOUDFLARE_API_TOKEN)
    : await loggedIn(wrangler);
  if (!headers) return null;
  const chosen = configured ?? env.CLOUDFLARE_ACCOUNT_ID;
  if (chosen) return openCloudflare(chosen, headers, env);
  const [account, another] = await openCloudflare("", headers, env)
    .call(Accounts, "GET", "//accounts")
    .catch((error: unknown) => {
      // A token may be allowed to use an account, and not to list any.
      if (error instanceof CloudflareError) return [];
      throw error;
    });
  if (!account || another)
    throw new Error("Set CLOUDFLARE_ACCOUNT_ID: which account is meant is not clear.");
  return openCloudflare(account.id, headers, env);
}

/** Returns the headers of the user who is logged in to wrangler; null if nobody is. */
async function loggedIn(wrangler: Wrangler): Promise<Record<string, string> | null> {
  const { stdout } = await wrangler.ask("auth", "token", "--json");
  const { data: found } = Credentials.safeParse(parseJson(stdout));
  if (!found) return null;
  return "token" in found
    ? bearer(found.token)
    : { "X-Auth-Key": found.key, "X-Auth-Email": found.email };
}
