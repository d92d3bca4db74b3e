import { useEffect, useRef } from "preact/hooks";
import { t } from "../text.ts";
import { Copy } from "./basics.tsx";

/** A secret to copy, shown once. */
export function Secret({ secret }: { secret: string }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus({ preventScroll: true }), []);
  return (
    <div class="secret">
      <p class="note warn">{t.secret.once}</p>
      <label class="field">
        {t.secret.label}
        <span class="with-button">
          <input
            ref={field}
            readOnly
            class="mono"
            value={secret}
            spellcheck={false}
            onFocus={({ currentTarget }) => currentTarget.select()}
          />
          <Copy text={secret} />
        </span>
      </label>
      <p>
        <a href="/docs#receivers" target="_blank" rel="noopener noreferrer">
          {t.secret.howTo}
        </a>
      </p>
    </div>
  );
}
