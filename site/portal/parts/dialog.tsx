import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { findEdited, hasDraft } from "../drafts.ts";
import { t } from "../text.ts";
import { SessionWarning } from "./session-warning.tsx";

interface DialogProps {
  title: string;
  /** Whether only its own button closes it, because it shows something that is shown only once. */
  isHeld?: boolean;
  onClose(): void;
  children: (close: () => void) => ComponentChildren;
}

/**
 * A modal dialog; when closed, it returns the focus to what opened it. Escape, or the gesture to go back, closes it,
 * but asks first if that would discard what the reader has typed.
 */
export function Dialog({ title, isHeld = false, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isAsking, setAsking] = useState(false);
  const titleId = useId();
  useEffect(() => dialog.current?.showModal(), []);
  const close = () => dialog.current?.close();
  const dismiss = (event: Event) => {
    // It may be that of a dialog within this one.
    if ((event.target as Element).closest("dialog") !== dialog.current) return;
    if (!isHeld && !(dialog.current && findEdited(dialog.current))) return;
    event.preventDefault();
    if (!isHeld) setAsking(!isAsking);
  };
  return (
    // Not everywhere: without `closedby`, the two listeners hold it open, but not against a second gesture.
    <dialog
      ref={dialog}
      aria-labelledby={titleId}
      closedby={isHeld ? "none" : "closerequest"}
      onKeyDown={(event) => event.key === "Escape" && dismiss(event)}
      onCancel={dismiss}
      onClose={onClose}
    >
      <h2 id={titleId}>{title}</h2>
      <SessionWarning />
      {children(close)}
      {isAsking && <Discard onKeep={() => setAsking(false)} onDiscard={close} />}
    </dialog>
  );
}

interface DiscardProps {
  onKeep(): void;
  onDiscard(): void;
}

/** Asks whether to discard what the reader has typed. Keeping it returns the focus to where it was. */
function Discard({ onKeep, onDiscard }: DiscardProps) {
  const keep = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    keep.current?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  return (
    <div class="note warn discard" role="alert">
      <p>{t.discard.title}</p>
      <div class="buttons">
        <button ref={keep} type="button" onClick={onKeep}>
          {t.discard.keep}
        </button>
        <button type="button" class="danger" onClick={onDiscard}>
          {t.discard.submit}
        </button>
      </div>
    </div>
  );
}

/** A button that opens a dialog. */
export function DialogButton(props: {
  label: string;
  /** The subject of the dialog, for readers who do not see the row of the button. */
  about?: string;
  class?: string;
  /** The name of the dialog's form, which is shown again after a session has ended. */
  draft?: string;
  children: (close: () => void) => ComponentChildren;
}) {
  const [isOpen, setOpen] = useState(() => props.draft !== undefined && hasDraft(props.draft));
  const button = useRef<HTMLButtonElement>(null);
  // An action may remove the button that offered it. The heading takes the focus over, before the button is gone.
  useLayoutEffect(
    () => () => {
      if (document.activeElement === button.current)
        document.querySelector("h1")?.focus({ preventScroll: true });
    },
    [],
  );
  return (
    <>
      <button
        ref={button}
        type="button"
        class={props.class}
        aria-label={props.about && `${props.label} ${props.about}`}
        onClick={() => setOpen(true)}
      >
        {props.label}
      </button>
      {isOpen && props.children(() => setOpen(false))}
    </>
  );
}
