/** The version of the API contract; site/guides/versioning.md says which changes need a new one. */
export const CONTRACT_VERSION = "1.0.0-draft.2";
