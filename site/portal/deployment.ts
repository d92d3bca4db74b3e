/** What the deployment told the page, in `meta` elements (src/http/portal/portal.ts). */
function read(name: string): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`)?.content ?? "";
}

/** The platform's name; empty if it has not told it. */
export const platformName = read("application-name");

/** The platform's colour, such as `#0b5d51`; empty if it has not told it. */
export const platformColor = read("theme-color");

/** Whether webhook URLs may use http and private addresses, as on a developer's machine. */
export const allowsLocalWebhooks = read("local-webhooks") === "true";
