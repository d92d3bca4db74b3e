import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { decodeCursor } from "../../../src/contract/cursor.ts";
import { eventTimeOf } from "../../../src/contract/ids.ts";
import type { Redelivered } from "../../../src/history/views.ts";
import { Fault } from "../api.ts";
import { formatNumber, formatTime } from "../format.ts";
import { reloadAll, useAction } from "../load.ts";
import { t } from "../text.ts";
import { announce } from "./announce.tsx";
import { Dialog } from "./dialog.tsx";
import { DialogForm } from "./dialog-form.tsx";
import { ActionFault } from "./faults.tsx";
import { Progress, shareOf } from "./progress.tsx";

/** A range of events to send, which takes one call for each part. */
export interface Range {
  /** The beginning of the range; null if there is nothing to send. */
  since: string | null;
  /** Counts the part after `cursor`, or the first one, without sending it. Absent if there is nothing to count. */
  count?: (cursor: string | null) => Promise<Redelivered>;
  /** Sends the part after `cursor`, or the first one. */
  send(cursor: string | null): Promise<Redelivered>;
  /** Returns the text to announce once all of the range is scheduled. */
  result(count: number): string;
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

const NOTHING: Redelivered = { count: 0, nextCursor: null };

/**
 * A dialog that says how many events a range has, sends them, shows how far it is, and can be stopped and continued.
 */
export function RangeDialog({ texts, isIncomplete = false, read, ...props }: Props) {
  const action = useAction();
  const { total, isCounting, count } = useCount();
  const [range, setRange] = useState<Range | null>(null);
  const [sent, setSent] = useState(NOTHING);
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
            action={action}
            close={close}
            isIncomplete={isIncomplete || isCounting || total === 0}
            submit={total !== null && texts.submitCount ? texts.submitCount(total) : texts.submit}
            onChange={(form) => void count(read(form))}
            onSubmit={(form) => {
              const asked = read(form);
              props.onChecked?.(asked !== null);
              if (asked) void go(asked, NOTHING, close);
            }}
          >
            {props.children}
            <p class="hint" role="status">
              {isCounting ? t.sendAgain.counting : total === 0 && t.sendAgain.result(0)}
            </p>
          </DialogForm>
        ) : (
          <>
            <Scheduled title={texts.title} range={range} sent={sent} total={total} />
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

/** Counts the events of the last range that it was given. There is no number until the server responds. */
function useCount() {
  const [total, setTotal] = useState<number | null>(null);
  const [isCounting, setCounting] = useState(false);
  const latest = useRef(0);
  const count = async (range: Range | null) => {
    const turn = ++latest.current;
    setTotal(null);
    setCounting(range?.count !== undefined);
    if (!range?.count) return;
    let [sum, cursor]: [number, string | null] = [0, null];
    try {
      do {
        const part: Redelivered = await range.count(cursor);
        if (turn !== latest.current) return;
        sum += part.count;
        cursor = part.nextCursor;
      } while (cursor !== null);
      setTotal(sum);
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
    } finally {
      if (turn === latest.current) setCounting(false);
    }
  };
  return { total, isCounting, count };
}

interface ScheduledProps {
  title: string;
  range: Range;
  sent: Redelivered;
  /** The number of events before the first one was sent; null if it is unknown. */
  total: number | null;
}

/** Shows how much of a range is scheduled: the share of the counted number or, without one, of the time. */
function Scheduled({ title, range, sent, total }: ScheduledProps) {
  const { since } = range;
  const { count, nextCursor } = sent;
  const position = decodeCursor("redelivery", nextCursor ?? "");
  if (!position || since === null) return null;
  const time = eventTimeOf(position.id);
  const done = total === null ? shareOf(time, Date.parse(since), position.at) : count / total;
  return (
    <Progress label={title} done={Math.min(1, done)}>
      {t.sendAgain.scheduled(formatNumber(count), formatTime(time))}
    </Progress>
  );
}
