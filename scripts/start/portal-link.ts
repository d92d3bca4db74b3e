import type { RequestListener } from "node:http";
import { PORTAL_LINK_MINUTES } from "../../src/contract/limits.ts";
import type { PlatformClient } from "../shared/platform-client.ts";

/** The path that leads to the portal. */
const PATH = "/portal";

/**
 * Leads a browser to the portal of the sample workspace, as a button of the app does: each request gets a new link. A
 * link itself expires after minutes, and this address never does.
 *
 * @param origin the address that the browser was given; requests under another name are not answered.
 */
export function leadToPortal(
  platform: PlatformClient,
  workspaceId: string,
  origin: string,
): RequestListener {
  return async (request, response) => {
    if (request.url !== PATH || request.headers.host !== new URL(origin).host)
      return response.writeHead(404).end();
    try {
      const validMinutes = PORTAL_LINK_MINUTES.max;
      const { url } = await platform.call("createPortalLink", { workspaceId, validMinutes });
      response.writeHead(302, { Location: url, "Cache-Control": "no-store" }).end();
    } catch (error) {
      response.writeHead(503, { "Content-Type": "text/plain" }).end((error as Error).message);
    }
  };
}

/** Returns the address that leads to the portal. */
export function portalAddress(origin: string): string {
  return origin + PATH;
}
