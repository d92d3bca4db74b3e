import type { OpenedSession } from "../../src/contract/portal-token.ts";
import { PORTAL_TOKEN } from "../../src/contract/portal-token.ts";

/**
 * The reader's session. A link's token comes in the fragment of the address, which browsers do not send
 * to servers. They do record it, in the history and elsewhere, before any script runs: so it can only be
 * exchanged, within two minutes, for the token of a session. That one is never part of an address. It is
 * kept for this tab, so that the page can be reloaded.
 */

const KEPT_AS = "portal-session";
const START = "#/webhooks";

/** Whether there is a session, or what the reader sees instead. */
export type SessionState = "missing" | "opening" | "open" | "outdated" | "ended" | "withdrawn";

/** Why a token is refused: it has expired, or its workspace has no access. */
export type Refusal = "expired" | "withdrawn";

interface View {
  state: SessionState;
  /** Of the session: sends requests. */
  token: string | null;
  /** The token of a link that is being exchanged. */
  link: string | null;
  /** A session of another workspace, which a link has opened and the reader has not accepted yet. */
  offer: OpenedSession | null;
  /** Why a link that was followed during a session opens nothing. */
  refusal: Refusal | null;
}

let view: View = { state: "missing", token: null, link: null, offer: null, refusal: null };
let onChange = () => {};

/** Opens the session that this tab already has, and follows the link in the address. */
export function openSession(): void {
  const token = withStorage((storage) => storage.getItem(KEPT_AS)) ?? null;
  if (token !== null) show({ state: "open", token });
  takeLink(START);
  // A link that is followed while the portal is open.
  addEventListener("hashchange", ({ oldURL }) => takeLink(new URL(oldURL).hash));
}

/**
 * Takes a link's token out of the address, and restores the place that a session is at. A fragment that starts with `/` is a
 * place; anything else that is not a token is ignored.
 */
function takeLink(place: string): void {
  const fragment = location.hash.slice(1);
  if (fragment === "" || fragment.startsWith("/")) return;
  const isOpen = view.state === "open";
  const hash = isOpen && place.startsWith("#/") ? place : START;
  history.replaceState(null, "", location.pathname + hash);
  if (!PORTAL_TOKEN.test(fragment)) return;
  show({ state: isOpen ? "open" : "opening", link: fragment, offer: null, refusal: null });
}

/** Calls `listener` whenever what `readSession` returns changes. */
export function watchSession(listener: () => void): void {
  onChange = listener;
}

export function readSession(): View {
  return view;
}

/**
 * A link has been exchanged: begins its session, unless one of another workspace is open. Then the
 * reader decides.
 */
export function arrive(link: string, opened: OpenedSession): void {
  // Another link was followed meanwhile.
  if (link !== view.link) return;
  const isOther = view.state === "open" && workspaceOf(view.token) !== opened.workspace.id;
  if (isOther) show({ link: null, offer: opened });
  else begin(opened.token);
}

/** Replaces the session by the one that is offered. */
export function acceptOffer(): void {
  if (!view.offer) return;
  // The place belongs to the workspace that is left.
  location.hash = START;
  begin(view.offer.token);
}

/** Goes on with the session: the reader has seen what became of the link. */
export function dismissArrival(): void {
  show({ offer: null, refusal: null });
}

/** The server has refused the token of the session or of a link. */
export function refuse(token: string | null, refusal: Refusal): void {
  if (token === null) return;
  if (token === view.link) refuseLink(refusal);
  else if (token === view.token) refuseSession(refusal);
}

function refuseLink(refusal: Refusal): void {
  if (view.state === "open") show({ link: null, refusal });
  else if (refusal === "expired") show({ state: "outdated", link: null });
  // The reader may try it again: access may be restored.
  else show({ state: "withdrawn" });
}

function refuseSession(refusal: Refusal): void {
  const isOver = refusal === "expired";
  if (isOver) keep(null);
  const token = isOver ? null : view.token;
  if (view.offer) acceptOffer();
  else if (view.link) show({ state: "opening", token });
  else show({ state: isOver ? "ended" : "withdrawn", token, refusal: null });
}

/** Tries again after access was withdrawn. */
export function resume(): void {
  show({ state: view.link === null ? "open" : "opening" });
}

function begin(token: string): void {
  keep(token);
  show({ state: "open", token, link: null, offer: null, refusal: null });
}

function show(changes: Partial<View>): void {
  view = { ...view, ...changes };
  onChange();
}

/** Keeps the session's token for a reload, or forgets it. */
function keep(token: string | null): void {
  withStorage((storage) =>
    token === null ? storage.removeItem(KEPT_AS) : storage.setItem(KEPT_AS, token),
  );
}

/** Uses this tab's storage; if a browser blocks it, the session is forgotten with the page. */
function withStorage<T>(use: (storage: Storage) => T): T | undefined {
  try {
    return use(sessionStorage);
  } catch {
    return undefined;
  }
}

/** When the session ends, in ISO 8601. */
export function readSessionEnd(): string {
  const [, , , end = "0"] = PORTAL_TOKEN.exec(view.token ?? "") ?? [];
  return new Date(Number.parseInt(end, 36) * 1000).toISOString();
}

function workspaceOf(session: string | null): string | undefined {
  return PORTAL_TOKEN.exec(session ?? "")?.[2];
}
