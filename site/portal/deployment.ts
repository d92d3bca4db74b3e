/** Reads a value that the deployment has set in a `meta` element (src/http/portal/portal.ts). */
function read(name: string): string {
  return document.querySelector<HTMLMetaElement>(`meta[name="${name}"]`)?.content ?? "";
}

/** The platform's name; empty if it is not configured. */
export const platformName = read("application-name");

/** The platform's colour, such as `#0b5d51`; empty if it is not configured. */
export const platformColor = read("theme-color");

/** Whether webhook URLs may use http and private addresses, as on a developer's machine. */
export const allowsLocalWebhooks = read("local-webhooks") === "true";
