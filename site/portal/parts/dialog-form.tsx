import type { ComponentChildren } from "preact";
import type { Action } from "../load.ts";
import { t } from "../text.ts";
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
      {props.fault ?? <ActionFault fault={action.fault} />}
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
