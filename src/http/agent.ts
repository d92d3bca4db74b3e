/** Patterns of the `User-Agent` of common clients, with their names in the log. */
const FAMILIES: [pattern: RegExp, family: string][] = [
  [/^curl/i, "curl"],
  [/^wget/i, "wget"],
  [/^(python|aiohttp)/i, "python"],
  [/^(node|undici|axios|got|deno|bun)\b/i, "javascript"],
  [/^(guzzle|php|symfony)/i, "php"],
  [/^go-http-client/i, "go"],
  [/^(java|okhttp|apache-httpclient)/i, "java"],
  [/^(ruby|faraday|rest-client)/i, "ruby"],
  [/^(postman|insomnia|bruno|httpie)/i, "api tool"],
  [/zapier/i, "zapier"],
  [/^make\/|integromat/i, "make"],
  [/n8n/i, "n8n"],
  [/^mozilla/i, "browser"],
];

/** Returns the family of the client that sent a `User-Agent`. A log line has no text that a client sent. */
export function agentFamily(userAgent: string | undefined): string {
  if (!userAgent) return "none";
  return FAMILIES.find(([pattern]) => pattern.test(userAgent))?.[1] ?? "other";
}
