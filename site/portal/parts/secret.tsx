import { useEffect, useRef } from "preact/hooks";
import { t } from "../text.ts";
import { Copy } from "./basics.tsx";

interface Props {
  secret: string;
  /** The label of the button that confirms that the reader has stored it. */
  stored: string;
  onStored(): void;
}

/** A secret to copy, shown once: until the reader has stored it, leaving asks for confirmation. */
export function Secret({ secret, stored, onStored }: Props) {
  const field = useRef<HTMLTextAreaElement>(null);
  const leaving = useRef(new AbortController());
  useEffect(() => {
    const { signal } = leaving.current;
    field.current?.focus({ preventScroll: true });
    addEventListener("beforeunload", (event) => event.preventDefault(), { signal });
    // To another place in the page. Browsers without the Navigation API do not ask.
    globalThis.navigation?.addEventListener(
      "navigate",
      (event) => {
        if (event.hashChange && event.cancelable && !confirm(t.secret.leave))
          event.preventDefault();
      },
      { signal },
    );
    return () => leaving.current.abort();
  }, []);
  return (
    <div class="secret">
      <p class="note warn">{t.secret.once}</p>
      <label class="field">
        {t.secret.label}
        <span class="with-button">
          <textarea
            ref={field}
            readOnly
            class="mono"
            rows={2}
            value={secret}
            spellcheck={false}
            onFocus={({ currentTarget }) => currentTarget.select()}
          />
          <Copy text={secret} />
        </span>
      </label>
      <p>
        <a href="/docs/guides/handlers" target="_blank" rel="noopener noreferrer">
          {t.secret.howTo}
        </a>
      </p>
      <div class="buttons">
        <button
          type="button"
          class="primary"
          onClick={() => {
            leaving.current.abort();
            onStored();
          }}
        >
          {stored}
        </button>
      </div>
    </div>
  );
}
