import { useEffect, useRef, useState } from "preact/hooks";
import { HEADERS_MAX } from "../../../src/contract/limits.ts";
import { countInDraft } from "../drafts.ts";
import { t } from "../text.ts";

interface Props {
  /** The name of the surrounding form. */
  form: string;
  /** The fault in the headers. */
  fault: string | undefined;
}

/** Asks for custom headers, in rows that are added one by one; `parseHeaders` reads them from the surrounding form. */
export function HeaderFields({ form, fault }: Props) {
  const [rows, setRows] = useState(() =>
    Array.from({ length: countInDraft(form, "headerName") }, (_, row) => row),
  );
  const add = () => setRows([...rows, (rows.at(-1) ?? 0) + 1]);
  return (
    <fieldset class="header-fields">
      <legend>{t.headers.title}</legend>
      <p class="hint">{t.headers.text}</p>
      {rows.map((row) => (
        <HeaderRow
          key={row}
          isInvalid={fault !== undefined}
          onRemove={() => setRows(rows.filter((one) => one !== row))}
        />
      ))}
      <p class="fault" aria-live="polite">
        {fault}
      </p>
      {rows.length < HEADERS_MAX && (
        <button type="button" onClick={add}>
          {t.headers.addRow}
        </button>
      )}
    </fieldset>
  );
}

/** A row of two fields, which takes the focus, because the reader has just requested it. */
function HeaderRow({ isInvalid, onRemove }: { isInvalid: boolean; onRemove(): void }) {
  const name = useRef<HTMLInputElement>(null);
  useEffect(() => name.current?.focus(), []);
  return (
    <div class="header-row">
      <input
        ref={name}
        name="headerName"
        class="mono"
        aria-label={t.headers.name}
        placeholder="Authorization"
        autocomplete="off"
        spellcheck={false}
        aria-invalid={isInvalid}
      />
      <input
        name="headerValue"
        class="mono"
        aria-label={t.headers.value}
        placeholder="Bearer token"
        autocomplete="off"
        spellcheck={false}
        aria-invalid={isInvalid}
      />
      <button type="button" class="quiet" onClick={onRemove}>
        {t.headers.drop.submit}
      </button>
    </div>
  );
}

/** Parses the headers in a form; null if one lacks its name or value, or two have one name. Empty rows do not count. */
export function parseHeaders(form: FormData): Record<string, string> | null {
  const values = form.getAll("headerValue").map((value) => String(value).trim());
  const rows = form
    .getAll("headerName")
    .map((name, row): [string, string] => [String(name).trim(), values[row] ?? ""])
    .filter((row) => row.join("") !== "");
  const names = new Set(rows.map(([name]) => name.toLowerCase()));
  const isWhole = rows.every(([name, value]) => name !== "" && value !== "");
  return isWhole && names.size === rows.length ? Object.fromEntries(rows) : null;
}
