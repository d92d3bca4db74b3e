/**
 * `npm run restore`: restores a database to an earlier time with D1's Time Travel. Records go back to that time.
 * What people have decided since then stays as it is now, because a restored database forgets it: a revoked key
 * would be valid again, and an erased person would be back. The steps:
 *
 * 1. show what will be done, and ask;
 * 2. pause deliveries, so that nothing is sent to a subscription that was deleted;
 * 3. note what has been decided, in a file: after the restore, only this file knows it;
 * 4. restore the database, and apply the migrations that it lacks;
 * 5. put back the rows that were created or changed: workspaces, API keys, subscriptions with their secrets,
 *    the audit trail;
 * 6. repeat through the Platform API what must have its effects again: revoke, disable, delete, erase;
 * 7. resume deliveries, and say what is left to do.
 *
 * If a step fails, the same command continues: it finds the file, and each step can be repeated.
 */
import { fail } from "../shared/command.ts";
import { openPlatform } from "../shared/platform-client.ts";
import { parseOptions } from "./options.ts";
import { restore } from "./restoration.ts";

process.on("uncaughtException", fail);
const options = parseOptions(process.argv.slice(2));
await restore(options, process.env, () => openPlatform({ remote: true, env: options.environment }));
