import { useLayoutEffect, useRef } from "preact/hooks";

/*
 * The text that a reader has typed into a form. Escape asks before it discards it. If the session ends, it is stored
 * for this tab, and the form shows it again once a link has opened the next session of the same workspace.
 */

const STORED_AS = "portal-draft";
/** How long a draft is stored: enough to sign in to the app. */
const STORED_MS = 15 * 60_000;

type Entries = [name: string, value: string][];

/** An edited form, when its session ended. */
interface Draft {
  workspaceId: string;
  /** The fragment of the address of its page. */
  place: string;
  /** The name of the form, among those of its page. */
  form: string;
  entries: Entries;
  until: number;
}

/** The draft to show again, from the beginning of the next session until a form takes it. */
let draft: Draft | null = null;

/** The content of each form when it was shown. */
const shown = new WeakMap<HTMLFormElement, string>();

function entriesOf(form: HTMLFormElement): Entries {
  return [...new FormData(form)].map(([name, value]) => [name, String(value)]);
}

/** Returns the form in `parent` that the reader has edited, if any. */
export function findEdited(parent: ParentNode): HTMLFormElement | undefined {
  return [...parent.querySelectorAll<HTMLFormElement>("form[data-draft]")].findLast(
    (form) => shown.get(form) !== JSON.stringify(entriesOf(form)),
  );
}

/** Stores the edited form, because the session has ended. */
export function storeDraft(workspaceId: string): void {
  const form = findEdited(document);
  if (!form) return;
  const { hash: place } = location;
  const entries = entriesOf(form);
  const name = form.dataset.draft ?? "";
  const stored: Draft = { workspaceId, place, form: name, entries, until: Date.now() + STORED_MS };
  try {
    sessionStorage.setItem(STORED_AS, JSON.stringify(stored));
  } catch {
    // If the browser blocks storage, all is forgotten with the page.
  }
}

/** Returns the draft of a workspace that is stored; null without one. */
export function readDraft(workspaceId: string | null): Draft | null {
  try {
    const stored = JSON.parse(sessionStorage.getItem(STORED_AS) ?? "null") as Draft | null;
    const isOurs = stored?.workspaceId === workspaceId && Date.now() < stored.until;
    return isOurs ? stored : null;
  } catch {
    return null;
  }
}

/** Prepares the draft of a workspace to be shown again, because its next session begins. No other one is stored then. */
export function resumeDraft(workspaceId: string | null): void {
  draft = readDraft(workspaceId);
  try {
    sessionStorage.removeItem(STORED_AS);
  } catch {
    // As above.
  }
}

/** Whether a form of this name, or whose name begins with this word, is to be shown again at the place of the page. */
export function hasDraft(name: string): boolean {
  if (draft === null || draft.place !== location.hash) return false;
  return [draft.form, draft.form.split(" ")[0]].includes(name);
}

/** Counts the fields of this name in the draft of a form. */
export function countInDraft(form: string, field: string): number {
  return hasDraft(form) ? (draft?.entries.filter(([name]) => name === field).length ?? 0) : 0;
}

/**
 * Makes a form one whose edits are not lost. Returns its reference.
 *
 * @param name its name, which is also its `data-draft`; absent for a form in which nothing is typed.
 */
export function useDraft(name: string | undefined) {
  const form = useRef<HTMLFormElement>(null);
  useLayoutEffect(() => {
    if (!form.current || name === undefined) return;
    shown.set(form.current, JSON.stringify(entriesOf(form.current)));
    if (draft === null || !hasDraft(name)) return;
    fill(form.current, draft.entries);
    draft = null;
  }, []);
  return form;
}

/** Fills a form in, as a reader would. */
function fill(form: HTMLFormElement, entries: Entries): void {
  const left = [...entries];
  for (const field of form.elements) {
    if (!("name" in field && "value" in field) || field.name === "") continue;
    const isChoice = field instanceof HTMLInputElement && /checkbox|radio/.test(field.type);
    const at = left.findIndex(
      ([name, value]) => name === field.name && (!isChoice || value === field.value),
    );
    if (isChoice) field.checked = at >= 0;
    else if (at >= 0) field.value = left[at]?.[1] ?? "";
    if (at >= 0) left.splice(at, 1);
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}
