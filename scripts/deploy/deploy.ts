/**
 * `npm run deploy`: deploys the Worker to a Cloudflare account, for the first time or again.
 *
 * In a terminal, it asks for what it needs. Without one, it reads CLOUDFLARE_API_TOKEN,
 * CLOUDFLARE_ACCOUNT_ID, ENCRYPTION_KEYS, API_KEY_CHECKSUM_KEYS and PORTAL_SIGNING_KEYS from
 * the environment. The steps:
 *
 * 1. choose the account, complete the secrets, and check that this version suits what is there: the
 *    databases and queues are where they should be, the keys decrypt what is stored, no migration
 *    forbids it. Nothing is changed if it does not;
 * 2. create the databases and queues that do not exist, in their jurisdiction: wrangler would create
 *    them without one;
 * 3. note how to restore the databases, and migrate them: the migrations must suit the version that
 *    still serves;
 * 4. deploy the Worker with its Durable Objects and secrets, tagged with the commit;
 * 5. ask it a few questions.
 *
 * A step that was done before is skipped.
 */
import { fail } from "../shared/command.ts";
import { openWrangler } from "../shared/wrangler.ts";
import { deploy } from "./deployment.ts";
import { parseOptions } from "./options.ts";

process.on("uncaughtException", fail);
const interactive = Boolean(process.stdin.isTTY && process.stdout.isTTY && !process.env.CI);
await deploy(parseOptions(process.argv.slice(2), interactive), process.env, openWrangler);
