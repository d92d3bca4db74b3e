import type { ComponentChildren } from "preact";
import type { WebhookView as Webhook } from "../../../src/webhooks/views.ts";
import { type Action, useAction } from "../load.ts";
import { t } from "../text.ts";
import { announce } from "./announce.tsx";
import { Dialog } from "./dialog.tsx";
import { ActionFault } from "./faults.tsx";

interface Props {
  action: Action;
  /** The label of the submit button. */
  submit: string;
  /** The label of the close button. */
  cancel?: string;
  isDangerous?: boolean;
  isIncomplete?: boolean;
  /** Shown instead of the action's own fault. */
  fault?: ComponentChildren;
  onSubmit(form: FormData): void;
  close(): void;
  children: ComponentChildren;
}

/** The form in a dialog: it does one thing, says why that failed, and can be closed. */
export function DialogForm(props: Props) {
  const { action, isDangerous = false, isIncomplete = false } = props;
  const submit = (
    <button
      type="submit"
      class={isDangerous ? "danger" : "primary"}
      disabled={action.isBusy || isIncomplete}
    >
      {props.submit}
    </button>
  );
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        props.onSubmit(new FormData(event.currentTarget));
      }}
    >
      {props.children}
      {props.fault || <ActionFault fault={action.fault} />}
      <div class="buttons">
        {!isDangerous && submit}
        <button type="button" onClick={props.close}>
          {props.cancel ?? t.cancel}
        </button>
        {/* Second: a dialog gives its first control the focus. */}
        {isDangerous && submit}
      </div>
    </form>
  );
}

/** What a dialog about a subscription is given. */
export interface AboutWebhook {
  webhook: Webhook;
  onClose(): void;
  /** Something has changed. */
  onDone(): void;
}

interface FormDialogProps extends Pick<Props, "isDangerous" | "isIncomplete" | "children"> {
  texts: { title: string; submit: string };
  /** Does it. @returns what to announce; null if the form must be corrected first. */
  act(form: FormData): Promise<string | null>;
  onClose(): void;
}

/** A dialog with a form, which closes once that is done. */
export function FormDialog({ texts, act, onClose, ...form }: FormDialogProps) {
  const action = useAction();
  return (
    <Dialog title={texts.title} onClose={onClose}>
      {(close) => (
        <DialogForm
          {...{ ...form, action, close }}
          submit={texts.submit}
          onSubmit={(given) =>
            void action.run(async () => {
              const result = await act(given);
              if (result === null) return;
              close();
              announce(result);
            })
          }
        />
      )}
    </Dialog>
  );
}
