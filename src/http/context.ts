import { OpenAPIHono } from "@hono/zod-openapi";
import type { PortalGrant } from "../contract/portal-token.ts";
import type { Database } from "../db/client.ts";
import type { RateLimit } from "../rate-limit/window.ts";
import { refuseInvalid } from "./invalid.ts";

/** The bindings and variables of a Hono context. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    /** The id of the request, for the log and the client. */
    requestId: string;
    /** The window that the rate limit headers report. While it is undefined, they report that of the IP address. */
    rateLimit: RateLimit | undefined;
    /** The grant of the portal session, and the name of its workspace. */
    portal: { grant: PortalGrant; name: string };
    /** The operation of a request of the portal, for the log. */
    operation: string | undefined;
    /** The subscription that a request of the portal names, for the log. */
    webhookId: string | undefined;
    /** The event that a request of the portal names, for the log. */
    eventId: string | undefined;
    /** Whether the response is a file that never changes, rather than an API response. */
    immutable: boolean | undefined;
    /** The request body, or the error of one that cannot be used; undefined until `readBody` reads it. */
    body: Promise<string> | undefined;
    /** The id of the key, once it is known to be valid. */
    keyId: string;
    /** The pseudonym of the IP address in the log, for a request that must authenticate. */
    address: string | undefined;
    workspaceId: string;
    /** The name of the database that the workspace lives in. */
    database: string;
    /** The database of a write, or of a request of the portal. */
    db: Database;
    /** Reads from the workspace's database for a `GET`, which may not be admitted yet (`handleRead`). */
    read: <T>(work: (db: Database) => Promise<T>) => Promise<T>;
  };
}

/** Creates an app, or a part of one. Input that the schemas of a route reject gets the error body. */
export function newApp() {
  return new OpenAPIHono<AppEnv>({ defaultHook: refuseInvalid });
}
