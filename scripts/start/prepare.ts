/**
 * Prepares the sample workspace of a running local server, in a separate process: the code that reaches
 * the Platform door takes much memory, and each start needs it only once.
 *
 *     node scripts/start/prepare.ts http://localhost:8787 http://127.0.0.1:8788/webhooks
 */
import { openPlatformDoor } from "../shared/platform-door.ts";
import { freshLead } from "../shared/sample.ts";
import { linkPortal, openSampleWorkspace, subscribe } from "./sample-workspace.ts";

const [base, receiverUrl] = process.argv.slice(2);
if (!base || !receiverUrl) throw new Error("expected the addresses of the server and the receiver");
// On a busy machine, it takes some seconds to find a server that has just started.
await using door = await openPlatformDoor({ patienceMs: 30_000 });
const state = await openSampleWorkspace(door, base);
await subscribe(state, base, receiverUrl);
await linkPortal(door, state.workspaceId);
// Something for the receiver to show.
await door.call("recordLeads", {
  workspaceId: state.workspaceId,
  leads: [freshLead(Date.now())],
});
