import { t } from "../text.ts";

interface Props {
  /** The name of the items on the pages. */
  label: string;
  /** The cursor of the page that is shown; null for the first. */
  cursor: string | null;
  /** The cursor of the next page; null if there is none. */
  next: string | null;
  /** The label of the link to the next page, if it may be empty. */
  older?: string | undefined;
  /** The address of the page with this cursor. */
  href(cursor: string | null): string;
}

/** The previous pages, by the cursor of the page they led to. */
const newerPages = new Map<string, string | null>();

/** Links to the newer and the older page of a list; nothing if it has a single page. */
export function Pages({ label, cursor, next, older = t.older, href }: Props) {
  if (cursor === null && next === null) return null;
  return (
    <nav class="pages" aria-label={label}>
      {cursor !== null && (
        <a class="button" href={href(newerPages.get(cursor) ?? null)}>
          ← {t.newer}
        </a>
      )}
      {next !== null && (
        <a class="button" href={href(next)} onClick={() => newerPages.set(next, cursor)}>
          {older} →
        </a>
      )}
    </nav>
  );
}
