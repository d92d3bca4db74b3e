import { z } from "@hono/zod-openapi";

const Answer = z.object({
  success: z.boolean(),
  errors: z.array(z.object({ message: z.string() })).nullish(),
  result: z.unknown().optional(),
});
const Named = z.object({ id: z.string(), name: z.string() });

/** The parts of Cloudflare's API that wrangler has no command for. */
export interface Api {
  /** The id of the zone that a host is in. @throws Error if the account has none. */
  findZone(hostname: string): Promise<string>;
  /**
   * Creates what has this name in a list, or replaces it.
   *
   * @param path the list, in the account unless it starts with `/zones/`.
   * @returns its id.
   */
  put(path: string, item: { name: string; [field: string]: unknown }): Promise<string>;
}

/** @throws Error if the environment has no credentials. */
export function openApi(env: NodeJS.ProcessEnv): Api {
  const { CLOUDFLARE_API_TOKEN: token, CLOUDFLARE_ACCOUNT_ID: account } = env;
  if (!token || !account) throw new Error("Set CLOUDFLARE_API_TOKEN and CLOUDFLARE_ACCOUNT_ID.");
  const base = env.CLOUDFLARE_API_BASE_URL ?? "https://api.cloudflare.com/client/v4";
  const call = async (method: string, path: string, body?: object): Promise<unknown> => {
    const response = await fetch(base + path, {
      method,
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(30_000),
    });
    const answer = Answer.safeParse(await response.json().catch(() => null));
    if (answer.data?.success) return answer.data.result;
    const reasons = answer.data?.errors?.map(({ message }) => message).join("; ");
    throw new Error(`Cloudflare refuses ${method} ${path}: ${reasons || response.status}`);
  };
  const list = async (path: string) => z.array(Named).parse((await call("GET", path)) ?? []);
  return {
    async findZone(hostname) {
      const labels = hostname.split(".");
      for (let i = 0; i < labels.length - 1; i++) {
        const [zone] = await list(`/zones?name=${labels.slice(i).join(".")}&account.id=${account}`);
        if (zone) return zone.id;
      }
      throw new Error(`The account has no zone for ${hostname}: a health check needs one.`);
    },
    async put(path, item) {
      const all = path.startsWith("/zones/") ? path : `/accounts/${account}${path}`;
      const existing = (await list(`${all}?per_page=1000`)).find(({ name }) => name === item.name);
      const result = existing
        ? await call("PUT", `${all}/${existing.id}`, item)
        : await call("POST", all, item);
      return z.object({ id: z.string() }).parse(result).id;
    },
  };
}
