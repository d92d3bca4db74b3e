import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { Fault } from "../api.ts";
import { reloadAll, useAction } from "../load.ts";
import { t } from "../text.ts";
import { announce } from "./announce.tsx";
import { Dialog } from "./dialog.tsx";
import { DialogForm } from "./dialog-form.tsx";

/** A range of events to send again. */
export interface Range {
  /** Counts the events without sending them. Absent if there is nothing to count. */
  count?: (isWanted: () => boolean) => Promise<number>;
  /** Begins to send them. The page then shows how far it is, as long as it takes. @returns the text to announce. */
  begin(): Promise<string>;
}

interface Props {
  texts: { title: string; submit: string; submitCount?: (n: number) => string };
  isIncomplete?: boolean;
  /** Reads the range that the form requests; null if the form must be corrected first. */
  read(form: FormData): Range | null;
  /** Says what is wrong with the form, or no longer. */
  onChecked?(isValid: boolean): void;
  onClose(): void;
  children: ComponentChildren;
}

/** A dialog that says how many events a range has, and begins to send them. */
export function RangeDialog({ texts, isIncomplete = false, read, ...props }: Props) {
  const action = useAction();
  const { total, isCounting, count } = useCount();
  const begin = (range: Range, close: () => void) =>
    action.run(async () => {
      try {
        const result = await range.begin();
        close();
        announce(result);
      } finally {
        reloadAll();
      }
    });
  return (
    <Dialog title={texts.title} onClose={props.onClose}>
      {(close) => (
        <DialogForm
          action={action}
          close={close}
          isIncomplete={isIncomplete || isCounting || total === 0}
          submit={total !== null && texts.submitCount ? texts.submitCount(total) : texts.submit}
          onChange={(form) => void count(read(form))}
          onSubmit={(form) => {
            const asked = read(form);
            props.onChecked?.(asked !== null);
            if (asked) void begin(asked, close);
          }}
        >
          {props.children}
          <p class="hint" role="status">
            {isCounting ? t.sendAgain.counting : total === 0 && t.sendAgain.nothing}
          </p>
        </DialogForm>
      )}
    </Dialog>
  );
}

/** Counts the events of the last range that it was given. There is no number until the server responds. */
function useCount() {
  const [total, setTotal] = useState<number | null>(null);
  const [isCounting, setCounting] = useState(false);
  const latest = useRef(0);
  const count = async (range: Range | null) => {
    const turn = ++latest.current;
    const isWanted = () => turn === latest.current;
    setTotal(null);
    setCounting(range?.count !== undefined);
    if (!range?.count) return;
    try {
      const sum = await range.count(isWanted);
      if (isWanted()) setTotal(sum);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
    } finally {
      if (isWanted()) setCounting(false);
    }
  };
  return { total, isCounting, count };
}
