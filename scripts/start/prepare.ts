/**
 * Makes the sample workspace of a running local server ready, in a process of its own: what reaches
 * the Platform door is large, and is needed once a start.
 *
 *     node scripts/start/prepare.ts http://localhost:8787 http://127.0.0.1:8788/webhooks
 */
import { PORTAL_LINK_MINUTES } from "../../src/contract/limits.ts";
import { readState, writeState } from "../shared/local-state.ts";
import { openPlatformDoor, type PlatformDoor } from "../shared/platform-door.ts";
import { freshLead } from "../shared/sample.ts";
import { openSampleWorkspace, subscribe } from "./sample-workspace.ts";

const [base, receiverUrl] = process.argv.slice(2);
if (!base || !receiverUrl) throw new Error("name the server and the receiver");
await using door = await openPlatformDoor();
const state = await openSampleWorkspace(door, base);
await subscribe(state, base, receiverUrl);
const portalLink = await makePortalLink(door, state.workspaceId);
writeState({ ...state, ...readState(), portalLink });
// Something for the receiver to show.
await door.call("recordLeads", {
  workspaceId: state.workspaceId,
  leads: [freshLead(Date.now())],
});

/** A link to the portal that works as long as one can; null where the deployment serves none. */
async function makePortalLink(door: PlatformDoor, workspaceId: string): Promise<string | null> {
  try {
    const validMinutes = PORTAL_LINK_MINUTES.max;
    return (await door.call("createPortalLink", { workspaceId, validMinutes })).url;
  } catch (error) {
    if (error instanceof Error && error.message.includes("PORTAL is off")) return null;
    throw error;
  }
}
