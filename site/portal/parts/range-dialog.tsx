import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { decodeCursor } from "../../../src/contract/cursor.ts";
import { eventTimeOf } from "../../../src/contract/ids.ts";
import type { Redelivered } from "../../../src/history/views.ts";
import { formatNumber, formatTime } from "../format.ts";
import { reloadAll, useAction } from "../load.ts";
import { t } from "../text.ts";
import { announce } from "./announce.tsx";
import { Dialog } from "./dialog.tsx";
import { DialogForm } from "./dialog-form.tsx";
import { ActionFault } from "./faults.tsx";
import { Progress, shareOf } from "./progress.tsx";

/** A range of events to send, which takes a call per part. */
export interface Range {
  /** Where it begins; null if there is nothing to send. */
  since: string | null;
  /** Sends the part after `cursor`, or the first one. */
  send(cursor: string | null): Promise<Redelivered>;
  /** What to announce once all of it is scheduled. */
  result(count: number): string;
}

interface Props {
  texts: { title: string; submit: string };
  isIncomplete?: boolean;
  /** The range that the form asks for; null if the form must be corrected first. */
  begin(form: FormData): Range | null;
  onClose(): void;
  children: ComponentChildren;
}

/** A dialog that sends a range of events, shows how far it is, and can be stopped and continued. */
export function RangeDialog({ texts, isIncomplete = false, begin, ...props }: Props) {
  const action = useAction();
  const [range, setRange] = useState<Range | null>(null);
  const [sent, setSent] = useState<Redelivered>({ count: 0, nextCursor: null });
  const [isStopping, setStopping] = useState(false);
  const isStopped = useRef(false);
  const stop = () => {
    isStopped.current = true;
    setStopping(true);
  };
  const go = (range: Range, from: Redelivered, close: () => void) =>
    action.run(async () => {
      isStopped.current = false;
      setStopping(false);
      let { count, nextCursor } = from;
      try {
        do {
          const part = await range.send(nextCursor);
          count += part.count;
          nextCursor = part.nextCursor;
          setRange(range);
          setSent({ count, nextCursor });
        } while (nextCursor !== null && !isStopped.current);
      } finally {
        reloadAll();
      }
      if (nextCursor !== null) return;
      close();
      announce(range.result(count));
    });
  return (
    <Dialog title={texts.title} isHeld={action.isBusy} onClose={props.onClose}>
      {(close) =>
        range === null ? (
          <DialogForm
            {...{ action, close, isIncomplete }}
            submit={texts.submit}
            onSubmit={(form) => {
              const begun = begin(form);
              if (begun) void go(begun, sent, close);
            }}
          >
            {props.children}
          </DialogForm>
        ) : (
          <>
            <Scheduled title={texts.title} {...{ range, sent }} />
            <ActionFault fault={action.fault} />
            <div class="buttons">
              {action.isBusy ? (
                <button type="button" disabled={isStopping} onClick={stop}>
                  {t.stop}
                </button>
              ) : (
                <>
                  <button type="button" onClick={close}>
                    {t.close}
                  </button>
                  <button type="button" class="primary" onClick={() => go(range, sent, close)}>
                    {t.goOn}
                  </button>
                </>
              )}
            </div>
          </>
        )
      }
    </Dialog>
  );
}

/** How much of a range is scheduled, and up to which time it was examined. */
function Scheduled(props: { title: string; range: Range; sent: Redelivered }) {
  const { title, range, sent } = props;
  const { since } = range;
  const { count, nextCursor } = sent;
  const position = decodeCursor("redelivery", nextCursor ?? "");
  if (!position || since === null) return null;
  const time = eventTimeOf(position.id);
  return (
    <Progress label={title} done={shareOf(time, Date.parse(since), position.at)}>
      {t.sendAgain.scheduled(formatNumber(count), formatTime(time))}
    </Progress>
  );
}
