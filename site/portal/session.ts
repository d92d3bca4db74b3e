/**
 * The reader's session. The token comes in the link's fragment, which browsers do not send to
 * servers. It is removed from the address immediately, so that neither the history nor a copied address
 * contains it, and kept for this tab only: a reload must not require a new link.
 */

const KEPT_AS = "portal-token";

export type SessionState = "missing" | "open" | "expired" | "withdrawn";

let token: string | null = null;
let state: SessionState = "missing";
let onChange = () => {};

/** Opens the session of the link that was followed, or the one this tab already had. */
export function openSession(): void {
  if (!takeToken()) {
    token = withStorage((storage) => storage.getItem(KEPT_AS)) ?? null;
    setState(token === null ? "missing" : "open");
  }
  // A link that is followed while the portal is already open.
  addEventListener("hashchange", takeToken);
}

/** Takes the token out of the address; a fragment that starts with `/` is a place in the portal. */
function takeToken(): boolean {
  const fragment = location.hash.slice(1);
  if (fragment === "" || fragment.startsWith("/")) return false;
  history.replaceState(null, "", `${location.pathname}#/webhooks`);
  token = fragment;
  withStorage((storage) => storage.setItem(KEPT_AS, fragment));
  setState("open");
  return true;
}

/** Calls `listener` whenever the session begins or ends. */
export function watchSession(listener: () => void): void {
  onChange = listener;
}

export function readToken(): string | null {
  return token;
}

export function readSession(): SessionState {
  return state;
}

/** Ends the session: its link has expired, or the workspace has lost access. */
export function endSession(end: "expired" | "withdrawn"): void {
  if (end === "expired") {
    token = null;
    withStorage((storage) => storage.removeItem(KEPT_AS));
  }
  setState(end);
}

/** Tries again with the same link: access may have been restored. */
export function resumeSession(): void {
  setState("open");
}

/** Uses this tab's storage; if a browser blocks it, the token is forgotten with the page. */
function withStorage<T>(use: (storage: Storage) => T): T | undefined {
  try {
    return use(sessionStorage);
  } catch {
    return undefined;
  }
}

function setState(next: SessionState): void {
  state = next;
  onChange();
}
