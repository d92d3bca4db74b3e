/**
 * `npm run restore`, apart from where the Platform API is: that of the Worker on this machine. Calling a deployed
 * one takes Cloudflare's network.
 */
import { parseOptions } from "../../../scripts/restore/options.ts";
import { restore } from "../../../scripts/restore/restoration.ts";
import { fail } from "../../../scripts/shared/command.ts";
import { openPlatform } from "../../../scripts/shared/platform-client.ts";

process.on("uncaughtException", fail);
await restore(parseOptions(process.argv.slice(2)), process.env, () => openPlatform());
