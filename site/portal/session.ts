/**
 * Who reads the page. The token comes in the link's fragment, which no browser sends to a server. It is
 * taken out of the address at once, so that neither history nor a copied address holds it, and kept for
 * this tab alone: a reload must not cost the reader a new link.
 */

const KEPT_AS = "portal-token";

export type SessionState = "missing" | "open" | "expired" | "withdrawn";

let token: string | null = null;
let state: SessionState = "missing";
let onChange = () => {};

/** Opens the session of the link that was followed, or else the one that this tab had. */
export function openSession(): void {
  if (!takeToken()) {
    token = withStorage((storage) => storage.getItem(KEPT_AS)) ?? null;
    setState(token === null ? "missing" : "open");
  }
  // A link that is followed where the portal is open already.
  addEventListener("hashchange", takeToken);
}

/** Takes a token out of the address; a fragment that begins with `/` is a place in the portal. */
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

/** Ends the session: its link is over, or the workspace has lost its access. */
export function endSession(end: "expired" | "withdrawn"): void {
  if (end === "expired") {
    token = null;
    withStorage((storage) => storage.removeItem(KEPT_AS));
  }
  setState(end);
}

/** Tries again with the same link: access may have been given back. */
export function resumeSession(): void {
  setState("open");
}

/** Uses the storage of this tab; a browser that blocks it forgets the token with the page. */
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
