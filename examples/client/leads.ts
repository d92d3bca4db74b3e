/** Prints all leads of the workspace, newest first, one JSON text per line. */
import { run } from "./run.js";

await run(async (client) => {
  for await (const lead of client.listLeads()) console.log(JSON.stringify(lead));
});
