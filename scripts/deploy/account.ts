import { confirm, select } from "@clack/prompts";
import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import type { Wrangler } from "../shared/wrangler.ts";
import { parseJson } from "./databases.ts";
import type { Options } from "./options.ts";
import { answered } from "./secret.ts";

const Account = z.object({ id: z.string(), name: z.string() });
/** Who is logged in to Cloudflare. */
const WhoAmI = z.object({ loggedIn: z.boolean(), accounts: z.array(Account).optional() });
/** The account to deploy to; null if wrangler knows it. @throws Error if you are not logged in. */
export async function chooseAccount(
  { interactive }: Options,
  wrangler: Wrangler,
  config: Unstable_Config,
  found: z.infer<typeof WhoAmI>,
  env: NodeJS.ProcessEnv,
): Promise<string | null> {
  let me = found;
  if (!me.loggedIn && interactive) {
    const agreed = await answered(confirm({ message: "Log in to Cloudflare in the browser?" }));
    if (agreed) await wrangler.show(["login"]);
    me = await whoAmI(wrangler);
  }
  if (!me.loggedIn)
    throw new Error(
      "Not logged in to Cloudflare: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.",
    );
  const { accounts = [] } = me;
  if (env.CLOUDFLARE_ACCOUNT_ID || accounts.length <= 1) return null;
  if (config.account_id) return null;
  if (!interactive) {
    const ids = accounts.map(({ id }) => id).join(", ");
    throw new Error(
      `Set CLOUDFLARE_ACCOUNT_ID: these credentials have access to several accounts: ${ids}.`,
    );
  }
  const options = accounts.map(({ id, name }) => ({ value: id, label: name }));
  return answered(select({ message: "Which account?", options }));
}

/** Asks wrangler who is logged in. */
export async function whoAmI(wrangler: Wrangler): Promise<z.infer<typeof WhoAmI>> {
  const { stdout, complaint } = await wrangler.ask("whoami", "--json");
  const answer = WhoAmI.safeParse(parseJson(stdout));
  if (!answer.success) throw new Error(`Cloudflare does not say who is logged in:\n${complaint}`);
  return answer.data;
}
