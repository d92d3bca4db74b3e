/** What a deployment may set beside wrangler.toml. */
interface Env {
  /** `"true"` admits http and private webhook targets; set by the local start script alone. */
  ALLOW_LOCAL_WEBHOOKS?: string;
}
