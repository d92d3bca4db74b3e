/**
 * Prepares the sample workspace of a running local server, in a separate process: the code that reaches
 * the Platform API takes much memory, and each start needs it only once.
 *
 *     node scripts/start/prepare.ts http://localhost:8787 http://127.0.0.1:8788/webhooks
 *
 * Without the second address, nothing is subscribed.
 */
import { openPlatform } from "../shared/platform-client.ts";
import { freshLead } from "../shared/sample.ts";
import { linkPortal, openSampleWorkspace, subscribe } from "./sample-workspace.ts";

const [base, receiverUrl = null] = process.argv.slice(2);
if (!base) throw new Error("expected the address of the server");
// On a busy machine, it takes some seconds to find a server that has just started.
await using platform = await openPlatform({ timeoutMs: 30_000 });
const state = await openSampleWorkspace(platform, base);
await subscribe(state, base, receiverUrl);
await linkPortal(platform, state.workspaceId);
// The receiver shows the event of this lead.
await platform.call("recordLeads", {
  workspaceId: state.workspaceId,
  leads: [freshLead(Date.now())],
});
