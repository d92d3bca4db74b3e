/**
 * `npm run deploy`: deploys the Worker to a Cloudflare account, for the first time or again. What wrangler
 * has, such as logging in, choosing an account and rolling back, is left to it. The steps:
 *
 * 1. complete the secrets, and check that this version suits what is there: the databases and queues
 *    are where they should be, the keys decrypt what is stored, no migration forbids it. Nothing is
 *    changed if it does not;
 * 2. create the databases and queues that do not exist, in their jurisdiction: wrangler would create
 *    them without one;
 * 3. migrate the databases: the migrations must suit the version that still serves. D1 can go back to the
 *    minute before, so nothing is noted for that;
 * 4. upload the new version, tagged with the commit, with its secrets, and ask it a few questions
 *    while the former one has the traffic;
 * 5. give it the traffic.
 *
 * A step that was done before is skipped.
 */
import { fail } from "../shared/command.ts";
import { deploy } from "./deployment.ts";
import { parseOptions } from "./options.ts";

process.on("uncaughtException", fail);
await deploy(parseOptions(process.argv.slice(2)), process.env);
