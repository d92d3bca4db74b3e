/** The methods whose calls the history of a workspace shows beside the changes of its subscriptions. */
export const HISTORY_METHODS = [
  "createWorkspace",
  "updateWorkspace",
  "setWorkspaceAccess",
  "createApiKey",
  "updateApiKey",
  "rollApiKey",
  "revokeApiKey",
  "createPortalLink",
  "openPortalSession",
  "endPortalSessions",
  "eraseLeads",
  "omitChanges",
] as const;
