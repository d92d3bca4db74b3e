/** What the deployment told the page, in `meta` elements (src/http/portal/portal.ts). */
function read(name: string): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`)?.content ?? "";
}

/** Whether webhook URLs may use http and private addresses, as on a developer's machine. */
export const allowsLocalWebhooks = read("local-webhooks") === "true";
