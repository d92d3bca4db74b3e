import { openApi } from "../../../scripts/shared/local-api.ts";
import type { Runtime } from "../../../scripts/shared/runtime.ts";

/** A new workspace of a running Worker, its key, and the API as used with that key. */
export async function openWorkspace(
  { env, url }: Runtime,
  fields: { adminEmails?: string[]; database?: string } = {},
) {
  const { workspaceId } = await env.PLATFORM.createWorkspace({ name: "Agence", ...fields });
  const apiKey = String((await env.PLATFORM.createApiKey({ workspaceId })).apiKey);
  const api = openApi(url.origin, apiKey);
  const subscribe = (target: string, events = ["lead.created"]) =>
    api<{ id: string; secret: string }>("POST", "/v1/webhooks", { url: target, events });
  return { workspaceId, apiKey, api, subscribe };
}
