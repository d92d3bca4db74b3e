import type { Database } from "../../db/client.ts";
import type { Home } from "../../db/homes.ts";
import type { Figures } from "../../gate/window.ts";
import type { PortalAccess } from "../../model/workspaces.ts";

/** What a handler finds in its Hono context. */
export interface AppEnv {
  Bindings: Env;
  Variables: {
    /** Names the request, in the logs and to the client. */
    requestId: string;
    /** The window that the answer's headers tell of. */
    figures: Figures | undefined;
    /** Whether no window is told of: the portal has none. */
    unmetered: boolean | undefined;
    /** What the link grants that opened the portal, and what it opens; null for a workspace that is gone. */
    portal: { endsAt: number; access: Promise<PortalAccess | null> };
    /** Whether the answer is a file that never changes, rather than one of the API. */
    immutable: boolean | undefined;
    /** Whether nothing is left of the request's body. */
    isBodyRead: boolean | undefined;
    /** The id of the key, once it is known to be good. */
    keyId: string;
    /** What the logs call the address of a request that failed to authenticate. */
    address: string | undefined;
    /** The workspace that the key belongs to. */
    workspaceId: string;
    /** The name of the database that the workspace lives in; another one once a write has followed it. */
    home: Pick<Home, "database">;
    db: Database;
  };
}
