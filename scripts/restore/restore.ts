/**
 * `npm run restore`: restores a database to an earlier time with D1's Time Travel. Records go back to that time.
 * Decisions that people have made since then are made again, because a restored database has lost them: a revoked key
 * would be valid again, and the data of an erased person would be back. The steps:
 *
 * 1. show the steps, and ask for confirmation;
 * 2. pause deliveries, so that nothing is sent to a subscription that was deleted;
 * 3. note the decisions in a file, which alone has them after the restore, and mark the database;
 * 4. restore the database, which removes the mark, and apply the migrations that it lacks;
 * 5. settle where workspaces live, and put back the rows that were created or changed: workspaces, API keys,
 *    subscriptions with their secrets, the audit trail;
 * 6. repeat calls of the Platform API whose effects are lost: revoke, disable, delete, erase;
 * 7. resume deliveries, leave only the bookmark in the file, and list what is left to do.
 *
 * If a step fails, the same command continues. The file has the steps that are done, and the calls that are left. The
 * mark shows whether the database has gone back.
 */
import { fail } from "../shared/command.ts";
import { openPlatform } from "../shared/platform-client.ts";
import { parseOptions } from "./options.ts";
import { restore } from "./restoration.ts";

process.on("uncaughtException", fail);
const options = parseOptions(process.argv.slice(2));
const { environment: env, configFile } = options;
await restore(options, process.env, () => openPlatform({ remote: true, env, configFile }));
