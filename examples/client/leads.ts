/** Prints every lead of the workspace, newest first, one JSON line each. */
import { run } from "./run.js";

await run(async (client) => {
  for await (const lead of client.listLeads()) console.log(JSON.stringify(lead));
});
