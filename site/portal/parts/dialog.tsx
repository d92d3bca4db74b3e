import type { ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";

interface DialogProps {
  title: string;
  /** Whether only its own button closes it, because it shows something that is shown only once. */
  isHeld?: boolean;
  onClose(): void;
  children: (close: () => void) => ComponentChildren;
}

/** A modal dialog; when closed, it returns the focus to what opened it. */
export function Dialog({ title, isHeld = false, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={titleId}
      closedby={isHeld ? "none" : "closerequest"}
      // For browsers that do not support `closedby`.
      onKeyDown={(event) => isHeld && event.key === "Escape" && event.preventDefault()}
      onCancel={(event) => isHeld && event.preventDefault()}
      onClose={onClose}
    >
      <h2 id={titleId}>{title}</h2>
      {children(() => dialog.current?.close())}
    </dialog>
  );
}

/** A button that opens a dialog. */
export function DialogButton(props: {
  label: string;
  /** The subject of the dialog, for readers who do not see the row of the button. */
  about?: string;
  class?: string;
  children: (close: () => void) => ComponentChildren;
}) {
  const [isOpen, setOpen] = useState(false);
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
