/** A place in the portal, named by the fragment of the address. */
export type Route =
  | { page: "webhooks" | "subscribe" | "events" | "unknown" }
  | { page: "usage"; query: URLSearchParams }
  | { page: "webhook"; id: string; query: URLSearchParams }
  | { page: "delivery"; id: string; eventId: string };

/** The place for a fragment such as `#/webhooks/whk_…?state=pending`. */
export function parseRoute(fragment: string): Route {
  const [path = "", query = ""] = fragment.replace(/^#/, "").split("?");
  const [first, id, eventId, ...more] = path.split("/").filter(Boolean).map(decode);
  if (more.length > 0) return { page: "unknown" };
  if (first === "usage" && !id) return { page: "usage", query: new URLSearchParams(query) };
  if ((first === "subscribe" || first === "events") && !id) return { page: first };
  if (first !== undefined && first !== "webhooks") return { page: "unknown" };
  if (!id) return { page: "webhooks" };
  if (eventId) return { page: "delivery", id, eventId };
  return { page: "webhook", id, query: new URLSearchParams(query) };
}

/** Decodes a part of an address, which may be malformed. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page of keys. */
export function usageHref(cursor: string | null): string {
  return cursor === null ? "#/usage" : `#/usage?${new URLSearchParams({ cursor })}`;
}

/** The address of a subscription, with its list of deliveries filtered by `query`. */
export function webhookHref(id: string, query: Record<string, string | null> = {}): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]);
  const search = new URLSearchParams(given).toString();
  return `#/webhooks/${encodeURIComponent(id)}${search && `?${search}`}`;
}

export function deliveryHref(id: string, eventId: string): string {
  return `#/webhooks/${encodeURIComponent(id)}/${encodeURIComponent(eventId)}`;
}

export function goTo(href: string): void {
  location.hash = href;
}
