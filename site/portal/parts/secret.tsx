import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../text.ts";
import { Copy } from "./basics.tsx";
import { Dialog } from "./dialog.tsx";

/** A secret that the server has just created, and that nothing else shows. */
interface NewSecret {
  title: string;
  /** Says what it belongs to, in sentences. */
  about: string[];
  secret: string;
  /** The label of the button that confirms that the reader has stored it. */
  stored: string;
  onStored?(): void;
}

let show = (_secret: NewSecret) => {};

/**
 * Shows a new secret until the reader has stored it, whatever becomes of the dialog, the page or the session that
 * requested it.
 */
export function showSecret(secret: NewSecret): void {
  show(secret);
}

/** Shows new secrets, one after the other. */
export function NewSecrets() {
  const [secrets, setSecrets] = useState<NewSecret[]>([]);
  useEffect(() => {
    show = (secret) => setSecrets((others) => [...others, secret]);
  }, []);
  const [first, ...others] = secrets;
  if (!first) return null;
  return <SecretDialog key={first.secret} of={first} onClose={() => setSecrets(others)} />;
}

function SecretDialog({ of: made, onClose }: { of: NewSecret; onClose(): void }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    field.current?.focus({ preventScroll: true });
    // Not everywhere: iOS does not ask.
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, []);
  return (
    <Dialog
      title={made.title}
      isHeld
      onClose={() => {
        onClose();
        made.onStored?.();
        // The element that opened the dialog may be gone.
        if (document.activeElement === document.body)
          document.querySelector("h1")?.focus({ preventScroll: true });
      }}
    >
      {(close) => (
        <div class="secret">
          {made.about.map((sentence) => (
            <p key={sentence} class="breakable">
              {sentence}
            </p>
          ))}
          <p class="note warn">{t.secret.once}</p>
          <label class="field">
            {t.secret.label}
            <span class="with-button">
              <textarea
                ref={field}
                readOnly
                class="mono"
                rows={2}
                value={made.secret}
                spellcheck={false}
                onFocus={({ currentTarget }) => currentTarget.select()}
              />
              <Copy text={made.secret} />
            </span>
          </label>
          <p>
            <a href="/docs/guides/handlers" target="_blank" rel="noopener noreferrer">
              {t.secret.howTo}
            </a>
          </p>
          <div class="buttons">
            <button type="button" class="primary" onClick={close}>
              {made.stored}
            </button>
          </div>
        </div>
      )}
    </Dialog>
  );
}
