import type { OpenedSession } from "../../src/contract/portal-token.ts";
import { PORTAL_TOKEN, readPortalToken } from "../../src/contract/portal-token.ts";
import { readDraft, resumeDraft, storeDraft } from "./drafts.ts";
import { askOtherTabs, offerToOtherTabs, tellOtherTabs } from "./tabs.ts";

/**
 * The reader's session. A link's token comes in the fragment of the address, which browsers do not send
 * to servers. They do record it, in the history and elsewhere, before any script runs: so it can only be
 * exchanged, within two minutes, for the token of a session. That one is never part of an address. It is
 * stored for this tab, so that the page can be reloaded, and given to other tabs that ask for it (tabs.ts).
 */

const STORED_AS = "portal-session";
const START = "#/webhooks";

/**
 * The key in the browser's storage of the app where the reader can sign in, and of the place that they wanted to see.
 */
const APP_STORED_AS = "portal-app";
const PLACE_STORED_AS = "portal-place";
/** How long a place is remembered: enough to sign in to the app. */
const PLACE_MS = 15 * 60_000;

/** A place that is remembered. */
interface Place {
  hash: string;
  workspaceId: string | null;
  until: number;
}

/** The state of the session, which decides what the reader sees. */
export type SessionState =
  | "asking"
  | "missing"
  | "opening"
  | "open"
  | "outdated"
  | "ended"
  | "withdrawn";

/** The reason why a token is rejected: it has expired, or its workspace has no access. */
export type Refusal = "expired" | "withdrawn";

interface View {
  state: SessionState;
  /** The token of the session, which sends requests. */
  token: string | null;
  /** The token of a link that is being exchanged. */
  link: string | null;
  /** A session of another workspace, which a link has opened and the reader has not accepted yet. */
  offer: OpenedSession | null;
  /** The reason why a link that was followed during a session opens nothing. */
  refusal: Refusal | null;
}

let view: View = { state: "asking", token: null, link: null, offer: null, refusal: null };
/** The workspace of the session that has ended; null if there was none. */
let formerWorkspace: string | null = null;
let onChange = () => {};

/** Opens the session that this tab or another one has, and follows the link in the address. */
export function openSession(): void {
  const token = withStorage("session", (storage) => storage.getItem(STORED_AS)) ?? null;
  if (token !== null) show({ state: "open", token });
  takeLink(takePlace() ?? START);
  // A link may be followed while the portal is open.
  addEventListener("hashchange", ({ oldURL }) => takeLink(new URL(oldURL).hash));
  offerToOtherTabs(() => (view.state === "open" ? view.token : null), adopt);
  if (view.state === "asking") void findSession();
}

/** Asks the other tabs for a session; without one, remembers the place until there is. */
async function findSession(): Promise<void> {
  const found = await askOtherTabs();
  if (view.state !== "asking") return;
  if (found !== null) return begin(found);
  rememberPlace(null);
  show({ state: "missing" });
}

/** Takes a session that was opened in another tab, if this one has none, it has ended, or it would end before. */
function adopt(token: string): void {
  const isWaiting = ["missing", "outdated", "ended"].includes(view.state);
  const isOther = formerWorkspace !== null && formerWorkspace !== workspaceOf(token);
  if ((isWaiting && !isOther) || (view.state === "open" && isRenewal(token))) begin(token);
}

/** Whether a token is that of the same person's session in the same workspace, and ends later. */
function isRenewal(token: string): boolean {
  const [present, next] = [readGrant(view.token), readGrant(token)];
  if (!present || !next || next.endsAt <= present.endsAt) return false;
  const { workspaceId, actor, readOnly } = present;
  return next.workspaceId === workspaceId && next.actor === actor && next.readOnly === readOnly;
}

/**
 * Takes a link's token out of the address, and restores the place that a session is at, or that the reader
 * wanted to see. A fragment that starts with `/` is a place; anything else that is not a token is ignored.
 */
function takeLink(place: string): void {
  const fragment = location.hash.slice(1);
  if (fragment === "" || fragment.startsWith("/")) return;
  const isOpen = view.state === "open";
  history.replaceState(null, "", location.pathname + (place.startsWith("#/") ? place : START));
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
 * Begins the session of a link that was exchanged, unless a session of another workspace is open. Then the
 * reader decides.
 */
export function arrive(link: string, opened: OpenedSession): void {
  // Another link was followed in the meantime.
  if (link !== view.link) return;
  const isOther = view.state === "open" && workspaceOf(view.token) !== opened.workspace.id;
  if (isOther) {
    show({ link: null, offer: opened });
    return;
  }
  // The place belongs to the workspace of the session that has ended.
  if (formerWorkspace !== null && formerWorkspace !== opened.workspace.id) location.hash = START;
  begin(opened.token);
  tellOtherTabs(opened.token);
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

/** Called when the server has rejected the token of the session or of a link. */
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
  const workspaceId = workspaceOf(view.token);
  if (isOver && workspaceId !== null) {
    formerWorkspace = workspaceId;
    store(null);
    rememberPlace(workspaceId);
    storeDraft(workspaceId);
  }
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
  store(token);
  const returnUrl = readGrant(token)?.returnUrl;
  if (returnUrl) withStorage("local", (storage) => storage.setItem(APP_STORED_AS, returnUrl));
  withStorage("local", (storage) => storage.removeItem(PLACE_STORED_AS));
  if (view.state !== "open") resumeDraft(workspaceOf(token));
  formerWorkspace = null;
  show({ state: "open", token, link: null, offer: null, refusal: null });
}

function show(changes: Partial<View>): void {
  view = { ...view, ...changes };
  onChange();
}

/** Stores the session's token for a reload, or forgets it. */
function store(token: string | null): void {
  withStorage("session", (storage) =>
    token === null ? storage.removeItem(STORED_AS) : storage.setItem(STORED_AS, token),
  );
}

/** Uses this tab's storage or the browser's; if it is blocked, all is forgotten with the page. */
function withStorage<T>(which: "session" | "local", use: (storage: Storage) => T): T | undefined {
  try {
    return use(which === "session" ? sessionStorage : localStorage);
  } catch {
    return undefined;
  }
}

/**
 * Remembers the place that the reader wants to see, such as the link of an e-mail, until they have signed in.
 *
 * @param workspaceId its workspace; null if that is not known.
 */
function rememberPlace(workspaceId: string | null): void {
  const { hash } = location;
  if (!hash.startsWith("#/webhooks/")) return;
  const place = JSON.stringify({ hash, workspaceId, until: Date.now() + PLACE_MS });
  withStorage("local", (storage) => storage.setItem(PLACE_STORED_AS, place));
}

/**
 * Returns the place of the draft that this tab has stored, or the remembered one, and forgets that. Only a link needs it,
 * because any other address is a place itself.
 */
function takePlace(): string | null {
  const link = location.hash.slice(1);
  if (!PORTAL_TOKEN.test(link)) return null;
  const stored = withStorage("local", (storage) => {
    const text = storage.getItem(PLACE_STORED_AS);
    storage.removeItem(PLACE_STORED_AS);
    return text;
  });
  const draft = readDraft(workspaceOf(link));
  if (draft) return draft.place;
  const place = JSON.parse(stored ?? "null") as Place | null;
  const isOther = place?.workspaceId != null && place.workspaceId !== workspaceOf(link);
  return place !== null && Date.now() < place.until && !isOther ? place.hash : null;
}

/** Reads the grant in the token of the session; null without a session. */
function readGrant(token: string | null) {
  return token === null ? null : (readPortalToken(token)?.grant ?? null);
}

function workspaceOf(token: string | null): string | null {
  return readGrant(token)?.workspaceId ?? null;
}

/** Returns the workspace of the session; null without one. */
export function readWorkspaceId(): string | null {
  return workspaceOf(view.token);
}

/** Returns when the session ends, in ISO 8601. */
export function readSessionEnd(): string {
  return new Date(readGrant(view.token)?.endsAt ?? 0).toISOString();
}

/** Whether a form is stored that was edited when the session ended. */
export function hasStoredDraft(): boolean {
  return readDraft(formerWorkspace) !== null;
}

/** Whether the session may change nothing. */
export function isReadOnly(): boolean {
  return readGrant(view.token)?.readOnly === true;
}

/** Returns the URL of the app that opened the portal, in this session or an earlier one; null if it gave none. */
export function readReturnUrl(): string | null {
  const stored = () => withStorage("local", (storage) => storage.getItem(APP_STORED_AS)) ?? null;
  const url = readGrant(view.token)?.returnUrl ?? stored();
  return url !== null && /^https?:\/\//.test(url) ? url : null;
}
