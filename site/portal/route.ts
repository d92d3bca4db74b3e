/** A part of a webhook's page. */
export type Tab = "overview" | "deliveries" | "settings" | "history";

export const TABS: readonly Tab[] = ["overview", "deliveries", "settings", "history"];

/** A place in the portal, named by the fragment of the address. */
export type Route =
  | { page: "webhooks" | "subscribe" | "events" | "unknown" }
  | { page: "failures" | "usage" | "history"; query: URLSearchParams }
  | { page: "webhook"; id: string; tab: Tab; eventId: string | null; query: URLSearchParams };

/** Parses a fragment such as `#/webhooks/whk_…/deliveries?state=retrying` to a place. */
export function parseRoute(fragment: string): Route {
  const [path = "", search = ""] = fragment.replace(/^#/, "").split("?");
  const query = new URLSearchParams(search);
  const [first = "webhooks", id, tab = "overview", eventId, ...more] = path
    .split("/")
    .filter(Boolean)
    .map(decode);
  if (more.length > 0) return { page: "unknown" };
  if (first === "webhooks" && id !== undefined) return parseWebhook(id, tab, eventId, query);
  if (id !== undefined) return { page: "unknown" };
  if (first === "failures" || first === "usage" || first === "history")
    return { page: first, query };
  if (first === "webhooks" || first === "subscribe" || first === "events") return { page: first };
  return { page: "unknown" };
}

function parseWebhook(
  id: string,
  name: string,
  eventId: string | undefined,
  query: URLSearchParams,
): Route {
  const tab = TABS.find((one) => one === name);
  if (!tab || (eventId !== undefined && tab !== "deliveries")) return { page: "unknown" };
  return { page: "webhook", id, tab, eventId: eventId ?? null, query };
}

/** Decodes a part of an address, which may be malformed. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The parameters of an address; those that are null or empty are left out. */
export type Query = Record<string, string | null | undefined>;

function withQuery(path: string, query: Query): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]);
  const search = new URLSearchParams(given).toString();
  return search === "" ? path : `${path}?${search}`;
}

/** Returns the address of a page of keys. */
export function usageHref(cursor: string | null): string {
  return withQuery("#/usage", { cursor });
}

/** Returns the address of a page of the workspace's history. */
export function workspaceHistoryHref(cursor: string | null): string {
  return withQuery("#/history", { cursor });
}

/** Returns the address of a page of failures, in one state or in any. */
export function failuresHref(query: Query = {}): string {
  return withQuery("#/failures", query);
}

/** Returns the address of a webhook. */
export function webhookHref(id: string, tab: Tab = "overview"): string {
  const path = `#/webhooks/${encodeURIComponent(id)}`;
  return tab === "overview" ? path : `${path}/${tab}`;
}

/** Returns the address of a page of a webhook's changes. */
export function historyHref(id: string, cursor: string | null): string {
  return withQuery(webhookHref(id, "history"), { cursor });
}

/** Returns the address of a webhook's list of deliveries, filtered by `query`. */
export function deliveriesHref(id: string, query: Query = {}): string {
  return withQuery(webhookHref(id, "deliveries"), query);
}

/** Returns the address of a delivery, beside the list that is filtered by `query`. */
export function deliveryHref(id: string, eventId: string, query: Query = {}): string {
  return withQuery(`${webhookHref(id, "deliveries")}/${encodeURIComponent(eventId)}`, query);
}

export function goTo(href: string): void {
  location.hash = href;
}

/**
 * Remembers how far each place is scrolled, in its entry of the browser's history, so that Back returns to it.
 * The browser's own memory is of no use: it restores the position before the content is there.
 */
export function rememberPositions(): void {
  history.scrollRestoration = "manual";
  const save = () => {
    const before = savedPosition();
    if (before !== scrollY) history.replaceState({ y: scrollY }, "");
  };
  // Not everywhere: a click saves the position, too, before its link is followed.
  addEventListener("scrollend", save);
  addEventListener("click", save, { capture: true });
}

/** Returns how far the place was scrolled when the reader left it; null if it is a new one. */
export function savedPosition(): number | null {
  const state = history.state as { y?: number } | null;
  return state?.y ?? null;
}
