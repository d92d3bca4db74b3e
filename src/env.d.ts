/** Variables that a deployment may set in addition to those in wrangler.toml. */
interface Env {
  /** `"true"` allows http and private webhook targets; set by the local start script only. */
  ALLOW_LOCAL_WEBHOOKS?: string;
  /**
   * The keys of callers of `/platform`, a secret: `id:base64(32 bytes)`, comma separated. Without them, the path does
   * not exist.
   */
  PLATFORM_KEYS?: string;
}
