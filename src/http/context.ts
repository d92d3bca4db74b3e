import { OpenAPIHono } from "@hono/zod-openapi";
import type { ApiError } from "../contract/errors.ts";
import type { PortalGrant } from "../contract/portal-token.ts";
import type { Database } from "../db/client.ts";
import type { RateLimit } from "../rate-limit/window.ts";
import type { Placement } from "../workspaces/placement.ts";
import { refuseInvalid } from "./invalid.ts";

/** A request body, or the error of one that cannot be used. */
export type ReadBody = { text: string } | { error: ApiError };

/** The bindings and variables of a Hono context. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    /** Identifies the request, in the logs and to the client. */
    requestId: string;
    /** The window that the rate limit headers report; undefined for the address's failure window. */
    rateLimit: RateLimit | undefined;
    /** What the portal session grants, and the name of its workspace. */
    portal: { grant: PortalGrant; name: string };
    /** What a request of the portal does, and with which subscription or delivery; for the log. */
    operation: string | undefined;
    webhookId: string | undefined;
    eventId: string | undefined;
    /** Whether the answer is a file that never changes, rather than an API response. */
    immutable: boolean | undefined;
    /** The request body; undefined until `readBody` has read it. */
    body: ReadBody | undefined;
    /** Whether the request body has been read to its end. */
    isBodyRead: boolean | undefined;
    /**
     * The error of a read that the key's gate refuses, null if it admits the request; undefined for other
     * requests, which are admitted before they are handled.
     */
    refusal: Promise<unknown> | undefined;
    /** Undoes what the request has written; undefined if its route cannot. */
    undo: (() => Promise<unknown>) | undefined;
    /** The id of the key, once it is known to be valid. */
    keyId: string;
    /** The pseudonym in the logs for the address of a request that must authenticate. */
    address: string | undefined;
    workspaceId: string;
    /** The name of the database that the workspace lives in. */
    placement: Pick<Placement, "database">;
    db: Database;
  };
}

/** An app, or a part of one. Input that a route's schemas reject gets the error envelope. */
export function newApp() {
  return new OpenAPIHono<AppEnv>({ defaultHook: refuseInvalid });
}
