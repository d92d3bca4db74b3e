/**
 * Makes the sample workspace of a running local server ready, in a process of its own: what reaches
 * the Platform door is large, and is needed once a start.
 *
 *     node scripts/start/prepare.ts http://localhost:8787 http://127.0.0.1:8788/webhooks
 */
import { openPlatformDoor } from "../shared/platform-door.ts";
import { freshLead } from "../shared/sample.ts";
import { linkPortal, openSampleWorkspace, subscribe } from "./sample-workspace.ts";

const [base, receiverUrl] = process.argv.slice(2);
if (!base || !receiverUrl) throw new Error("name the server and the receiver");
// On a busy machine a server that has just started is found only after some seconds.
await using door = await openPlatformDoor({ patienceMs: 30_000 });
const state = await openSampleWorkspace(door, base);
await subscribe(state, base, receiverUrl);
await linkPortal(door, state.workspaceId);
// Something for the receiver to show.
await door.call("recordLeads", {
  workspaceId: state.workspaceId,
  leads: [freshLead(Date.now())],
});
