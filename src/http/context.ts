import { type Hook, OpenAPIHono, type z } from "@hono/zod-openapi";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { toInputError } from "../contract/input.ts";
import type { PortalGrant } from "../contract/portal-token.ts";
import { type Feature, isServed } from "../contract/served.ts";
import type { Database } from "../db/client.ts";
import type { RateLimit } from "../rate-limit/window.ts";
import type { Placement } from "../workspaces/placement.ts";

/** The bindings and variables of a Hono context. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    /** The id of the request, for the log and the client. */
    requestId: string;
    /**
     * The window that the rate limit headers report: that of the key or, after a failed authentication, that of the IP
     * address. While it is undefined, they report what this isolate has cached of the IP address (`addressWindow`).
     */
    rateLimit: RateLimit | undefined;
    /** The grant of the portal session, and the name of its workspace. */
    portal: { grant: PortalGrant; name: string };
    /** The operation of a request of the portal, for the log. */
    operation: string | undefined;
    /** The subscription that a deletion or a request of the portal names, for the log. */
    webhookId: string | undefined;
    /** The event that a request of the portal names, for the log. */
    eventId: string | undefined;
    /** Whether the response is a file that never changes, rather than an API response. */
    immutable: boolean | undefined;
    /** The request body, or the error of one that cannot be used; undefined until `readBody` reads it. */
    body: Promise<string> | undefined;
    /** The id of the key; undefined until its gate has found it, and in the portal. */
    keyId: string;
    /** The pseudonym of the IP address in the log, for a request that must authenticate. */
    address: string | undefined;
    /** The workspace of the key or of the session. A read sets it before it is admitted, so a refused one logs it, too. */
    workspaceId: string;
    /** The workspace's database, for a write or a request of the portal. */
    placement: Placement;
    /**
     * Reads from the workspace's database for a `GET` (`handleRead`). Returns once the request is admitted, or throws the
     * refusal. The work may begin before, and may be done twice.
     */
    readAdmitted: <T>(work: (db: Database) => Promise<T>) => Promise<T>;
  };
}

/** Creates an app, or a part of one. Input that the schemas of a route reject gets the error body. */
export function newApp() {
  return new OpenAPIHono<AppEnv>({ defaultHook: refuseInvalid });
}

/**
 * The validation hook of every route. It rejects parameters and bodies that do not match their schemas.
 *
 * @throws InputError, which `handleError` turns into a 400 that names the parameter and has the `params` of its check.
 */
// biome-ignore lint/suspicious/noExplicitAny: the library's own type of a hook for all routes
const refuseInvalid: Hook<any, any, any, void> = (result) => {
  if (result.success) return;
  // The validator also passes the input itself, which zod-openapi's type leaves out.
  const { error, data } = result as { error: z.ZodError; data?: unknown };
  throw toInputError(error.issues, data);
};

/**
 * Makes the middleware of a route that responds with 404 unless the deployment serves this feature. The contract demands
 * that status of a route that is not served yet. The middleware has the feature as a property, so that mcp.ts offers no
 * tool for a route that is not served.
 */
export function served(feature: Feature) {
  const middleware = createMiddleware<AppEnv>(async (c, next) => {
    if (!isServed(c.env.SERVED_ROUTES, feature)) throw new ApiError("route_not_found");
    await next();
  });
  return Object.assign(middleware, { feature });
}
