import { useState } from "preact/hooks";
import type { ReplayView } from "../../../src/workspaces/views.ts";
import { type RedeliveryRange, redeliver } from "../api.ts";
import { startOfDay } from "../filters.ts";
import { formatDate, formatTime } from "../format.ts";
import { type Fact, Facts } from "../parts/basics.tsx";
import type { AboutWebhook } from "../parts/dialog-form.tsx";
import { type Range, RangeDialog } from "../parts/range-dialog.tsx";
import { parsePeriod, SinceField } from "../parts/since.tsx";
import { beginReplay, countRange } from "../replaying.ts";
import { t } from "../text.ts";

const STATES = ["retrying", "exhausted", "cancelled", "missed", "delivered"] as const;

/** Makes the range of the same events at each of these webhooks. */
function toRange(ids: readonly string[], wanted: RedeliveryRange, onBegun = () => {}): Range {
  return {
    count: async (isWanted) => {
      let sum = 0;
      for (const id of ids) if (isWanted()) sum += await countRange(id, wanted, isWanted);
      return sum;
    },
    begin: async () => {
      for (const id of ids) await beginReplay((cursor) => redeliver(id, { ...wanted, cursor }));
      onBegun();
      return t.replays.begun;
    },
  };
}

/** Replays the events of a period. */
export function RedeliverDialog({ webhook, onClose }: AboutWebhook) {
  const [isIncomplete, setIncomplete] = useState(false);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const read = (form: FormData): Range | null => {
    const now = Date.now();
    const period = parsePeriod(form, now);
    const states = form.getAll("states") as string[];
    if (period === null || states.length === 0) return null;
    return toRange([webhook.webhookId], { ...period, states });
  };
  return (
    <RangeDialog
      texts={t.sendAgain}
      isIncomplete={isIncomplete}
      read={read}
      onClose={onClose}
      onChecked={(isValid) => setSinceFault(isValid ? null : t.since.required)}
    >
      <p>{t.sendAgain.text}</p>
      {webhook.state === "failing" && <p class="note warn">{t.sendAgain.stillFailing}</p>}
      <SinceField webhook={webhook} fault={sinceFault} mayEnd />
      <fieldset
        onInput={({ currentTarget }) => setIncomplete(!currentTarget.querySelector(":checked"))}
      >
        <legend>{t.sendAgain.which}</legend>
        {STATES.map((state) => (
          <label class="check" key={state}>
            <input
              type="checkbox"
              name="states"
              value={state}
              defaultChecked={state !== "delivered"}
            />
            {t.sendAgain[state]}
          </label>
        ))}
      </fieldset>
    </RangeDialog>
  );
}

/** Returns the states of a list's deliveries that can be sent again. What is new is sent anyway. */
export function replayable(state: string | null): string[] {
  if (state === "waiting") return ["retrying"];
  return ["retrying", "exhausted", "cancelled", "delivered"].filter(
    (one) => state === null || one === state,
  );
}

/** Names a period in the reader's time zone: its day, if it is one. */
function describePeriod(since: string, until: string | null | undefined): string {
  if (!until) return t.sendAgain.period(formatTime(since), null);
  const start = Date.parse(since);
  const isDay = since === startOfDay(start) && until === startOfDay(start, 1);
  return isDay ? formatDate(since) : t.sendAgain.period(formatTime(since), formatTime(until));
}

/** Describes which events a range has. */
export function describeRange(
  range: Pick<ReplayView, "since" | "until" | "states" | "type" | "status"> | RedeliveryRange,
): Fact[] {
  const { since, until, states, type, status } = range;
  const names: Partial<Record<string, string>> = { ...t.deliveryStates, missed: t.replays.missed };
  const facts: Fact[] = [
    [t.deliveries.when, describePeriod(since, until)],
    [t.deliveries.state, states.map((state) => names[state] ?? state).join(", ")],
  ];
  if (type) facts.push([t.deliveries.type, t.types[type] ?? type]);
  if (status)
    facts.push([t.deliveries.status, status === "none" ? t.deliveries.noAnswer : String(status)]);
  return facts;
}

interface ShownProps {
  /** The webhooks that the list is of. */
  webhookIds: readonly string[];
  /** The events that the list shows. */
  wanted: RedeliveryRange;
  onBegun?(): void;
  onClose(): void;
}

/** Replays the events that a list shows. */
export function ReplayShownDialog({ webhookIds, onBegun, onClose, ...props }: ShownProps) {
  // The events when the dialog was opened, because the page behind it goes on refreshing.
  const [wanted] = useState(props.wanted);
  return (
    <RangeDialog
      texts={t.sendAgain.shown}
      read={() => toRange(webhookIds, wanted, onBegun)}
      onClose={onClose}
    >
      <p>{t.sendAgain.text}</p>
      <Facts of={describeRange(wanted)} />
    </RangeDialog>
  );
}
