import { WebhookEvent } from "../../src/contract/enumerations.ts";
import type { PageBody } from "../../src/http/paging.ts";
import type { WebhookWithSecret } from "../../src/http/routes/webhooks.ts";
import type { Webhook } from "../../src/subscriptions/subscriptions.ts";
import { openApi, Refusal } from "../shared/local-api.ts";
import { type LocalState, readState, writeState } from "../shared/local-state.ts";
import type { PlatformClient } from "../shared/platform-client.ts";
import { freshLead, loadSample } from "../shared/sample.ts";

/**
 * Prepares the sample workspace of a running local server.
 *
 * @param base its base URL, such as `http://localhost:8787`.
 * @param receiverUrl what is subscribed to all events; nothing if null.
 */
export async function prepareWorkspace(
  platform: PlatformClient,
  base: string,
  receiverUrl: string | null,
): Promise<void> {
  const state = await openSampleWorkspace(platform, base);
  await subscribe(state, base, receiverUrl);
  const { workspaceId } = state;
  // The receiver shows the event of this lead.
  await platform.call("recordLeads", { workspaceId, leads: [freshLead(Date.now())] });
}

/**
 * Opens the sample workspace of the last start, or creates one if the storage no longer has it. It has
 * access, a valid key, and the sample data; existing data is left unchanged.
 *
 * @returns its state, which is also stored for the next start.
 */
async function openSampleWorkspace(
  platform: PlatformClient,
  base: string,
): Promise<LocalState & { apiKey: string }> {
  const state = (await findWorkspace(platform)) ?? (await makeWorkspace(platform));
  const { workspaceId } = state;
  let { apiKey } = state;
  if (!apiKey || !(await isAccepted(base, apiKey))) {
    ({ apiKey } = await platform.call("createApiKey", { workspaceId }));
    writeState({ ...state, apiKey });
  }
  if (!state.sampleLoaded) await loadSample(platform, workspaceId, Date.now());
  const opened = { ...state, apiKey, sampleLoaded: true };
  writeState(opened);
  return opened;
}

async function findWorkspace(platform: PlatformClient): Promise<LocalState | null> {
  const state = readState();
  if (!state) return null;
  try {
    await platform.call("setWorkspaceAccess", { workspaceId: state.workspaceId, granted: true });
    return state;
  } catch (error) {
    if (error instanceof Error && error.message.includes("no such workspace")) return null;
    throw error;
  }
}

async function makeWorkspace(platform: PlatformClient): Promise<LocalState> {
  const { workspaceId } = await platform.call("createWorkspace", {
    name: "Groupe Horizon",
    adminEmails: ["admin@example.com"],
  });
  const nothing = { apiKey: null, sampleLoaded: false, webhook: null };
  const state = { workspaceId, ...nothing };
  writeState(state);
  return state;
}

async function isAccepted(base: string, apiKey: string): Promise<boolean> {
  try {
    await openApi(base, apiKey)("GET", "/v1/webhooks?limit=1");
    return true;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return error.code !== "invalid_api_key";
  }
}

/**
 * Subscribes `url` to every event type, unless an earlier start did and its secret is known; null
 * removes what an earlier start subscribed. Does nothing in a deployment that does not serve webhooks.
 */
async function subscribe(
  state: LocalState & { apiKey: string },
  base: string,
  url: string | null,
): Promise<void> {
  const api = openApi(base, state.apiKey);
  try {
    const { data } = await api<PageBody<Webhook>>("GET", "/v1/webhooks?limit=100");
    const known = data.find(({ id }) => id === state.webhook?.id);
    if (known && known.url === url && known.disabled_at === null) return;
    // Subscriptions are removed if their secret is lost or their port has changed.
    for (const old of data)
      if (old === known || old.url === url) await api("DELETE", `/v1/webhooks/${old.id}`);
    if (url === null) return writeState({ ...state, webhook: null });
    const { id, secret } = await api<WebhookWithSecret>("POST", "/v1/webhooks", {
      url,
      events: WebhookEvent.options,
    });
    writeState({ ...state, webhook: { id, secret } });
  } catch (error) {
    if (!(error instanceof Refusal && error.code === "route_not_found")) throw error;
    writeState({ ...state, webhook: null });
  }
}
