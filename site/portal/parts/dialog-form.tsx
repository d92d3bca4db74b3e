import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { WebhookDetails as Webhook } from "../../../src/history/views.ts";
import { Fault } from "../api.ts";
import { useDraft } from "../drafts.ts";
import { type Action, useAction } from "../load.ts";
import { t } from "../text.ts";
import { announce } from "./announce.tsx";
import { Dialog } from "./dialog.tsx";
import { ActionFault, describeFault, faultOf } from "./faults.tsx";

interface Props {
  action: Action;
  /** The label of the submit button. */
  submit: string;
  /** The label of the close button. */
  cancel?: string;
  /** The name of the form, if edits of it are not to be lost. */
  draft?: string;
  isDangerous?: boolean;
  isIncomplete?: boolean;
  /** Shown instead of the action's own fault. */
  fault?: ComponentChildren;
  /** Receives the form when it is shown, and after each change of it. */
  onChange?(form: FormData): void;
  onSubmit(form: FormData): void;
  close(): void;
  children: ComponentChildren;
}

/** Shows a form in a dialog. It performs one action, explains why it failed, and can be closed. */
export function DialogForm(props: Props) {
  const { action, isDangerous = false, isIncomplete = false } = props;
  const form = useDraft(props.draft);
  const change = () => form.current && props.onChange?.(new FormData(form.current));
  useEffect(() => void change(), []);
  return (
    <form
      ref={form}
      data-draft={props.draft}
      noValidate
      // After the fields have changed: a choice may add another field.
      onInput={() => setTimeout(change)}
      onSubmit={(event) => {
        event.preventDefault();
        props.onSubmit(new FormData(event.currentTarget));
      }}
    >
      {props.children}
      {props.fault || <ActionFault fault={action.fault} />}
      <div class="buttons">
        {/* First: a dialog without a field gives its first button the focus. */}
        <button type="button" onClick={props.close}>
          {props.cancel ?? t.cancel}
        </button>
        <button
          type="submit"
          class={isDangerous ? "danger" : "primary"}
          disabled={isIncomplete}
          // It stays focused, which a disabled button does not.
          aria-disabled={action.isBusy}
        >
          {props.submit}
        </button>
      </div>
    </form>
  );
}

/**
 * An action that a form requests. If the form is gone when the action fails, the reason is announced. `isGone` tells
 * whether it is.
 */
export function useOutlivingAction(): Action & { isGone(): boolean } {
  const action = useAction();
  const isGone = useRef(false);
  useEffect(
    () => () => {
      isGone.current = true;
    },
    [],
  );
  const run = (work: () => Promise<void>) =>
    action.run(() =>
      work().catch((error) => {
        if (isGone.current && error instanceof Fault) announce(describeFault(error));
        throw error;
      }),
    );
  return { ...action, run, isGone: () => isGone.current };
}

/** The props of a dialog about a webhook. */
export interface AboutWebhook {
  webhook: Webhook;
  onClose(): void;
}

interface FormDialogProps extends Pick<Props, "draft" | "isDangerous" | "isIncomplete"> {
  texts: { title: string; submit: string };
  /** The name of the field that shows its own fault. */
  field?: string;
  /** Performs the action. @returns the text to announce; null if the form must be corrected first. */
  act(form: FormData): Promise<string | null>;
  onClose(): void;
  /** The form, or a function that makes it with the server's fault of the field. */
  children: ComponentChildren | ((fault: string | undefined) => ComponentChildren);
}

/** A dialog with a form, which closes once that is done. */
export function FormDialog(props: FormDialogProps) {
  const { texts, field = "", act, onClose, children, ...form } = props;
  const action = useOutlivingAction();
  const fault = faultOf(action.fault, field);
  return (
    <Dialog title={texts.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          {...form}
          action={action}
          close={close}
          submit={texts.submit}
          // Shown at its field.
          fault={fault !== undefined && <div />}
          onSubmit={(given) =>
            void action.run(async () => {
              const result = await act(given);
              if (result === null) return;
              close();
              announce(result);
            })
          }
        >
          {typeof children === "function" ? children(fault) : children}
        </DialogForm>
      )}
    </Dialog>
  );
}
