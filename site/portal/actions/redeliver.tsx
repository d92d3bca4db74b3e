import { useState } from "preact/hooks";
import { type RedeliveryRange, redeliver } from "../api.ts";
import { startOfDay } from "../filters.ts";
import { formatDate, formatTime } from "../format.ts";
import { type Fact, Facts } from "../parts/basics.tsx";
import type { AboutWebhook } from "../parts/dialog-form.tsx";
import { type Range, RangeDialog } from "../parts/range-dialog.tsx";
import { parseSince, SinceField } from "../parts/since.tsx";
import { t } from "../text.ts";

const STATES = ["retrying", "exhausted", "cancelled", "missed"] as const;

function toRange(id: string, wanted: RedeliveryRange): Range {
  return {
    since: wanted.since,
    count: (cursor) => redeliver(id, { ...wanted, cursor, dryRun: true }),
    send: (cursor) => redeliver(id, { ...wanted, cursor }),
    result: t.sendAgain.result,
  };
}

/** Resends the events that have failed since a given time. */
export function RedeliverDialog({ webhook, onClose }: AboutWebhook) {
  const [isIncomplete, setIncomplete] = useState(false);
  const [sinceFault, setSinceFault] = useState<string | null>(null);
  const read = (form: FormData): Range | null => {
    const since = parseSince(form, webhook, Date.now());
    const states = form.getAll("states") as string[];
    return since === null || states.length === 0
      ? null
      : toRange(webhook.webhookId, { since, states });
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
      <SinceField webhook={webhook} fault={sinceFault} />
      <fieldset
        onInput={({ currentTarget }) => setIncomplete(!currentTarget.querySelector(":checked"))}
      >
        <legend>{t.sendAgain.which}</legend>
        {STATES.map((state) => (
          <label class="check" key={state}>
            <input type="checkbox" name="states" value={state} defaultChecked />
            {t.sendAgain[state]}
          </label>
        ))}
      </fieldset>
    </RangeDialog>
  );
}

/** Returns the states of a list's deliveries that can be sent again; without a filter, those of failed ones. */
export function resendable(state: string | null): string[] {
  if (state === null) return ["retrying", "exhausted", "cancelled"];
  return ["retrying", "exhausted", "cancelled", "delivered"].filter((one) => one === state);
}

/** Names a period in the reader's time zone: its day, if it is one. */
function describePeriod(since: string, until: string | null | undefined): string {
  if (!until) return t.sendAgain.period(formatTime(since), null);
  const isDay =
    since === startOfDay(Date.parse(since)) && until === startOfDay(Date.parse(since), 1);
  return isDay ? formatDate(since) : t.sendAgain.period(formatTime(since), formatTime(until));
}

interface ShownProps extends AboutWebhook {
  /** The events that the list shows. */
  wanted: RedeliveryRange;
}

/** Resends the events that the list shows. */
export function ResendShownDialog({ webhook, wanted, onClose }: ShownProps) {
  const { since, until, states, type, status } = wanted;
  const names: Partial<Record<string, string>> = t.deliveryStates;
  const facts: Fact[] = [
    [t.deliveries.state, states.map((state) => names[state] ?? state).join(", ")],
    [t.deliveries.when, describePeriod(since, until)],
  ];
  if (type) facts.push([t.deliveries.type, t.types[type] ?? type]);
  if (status) facts.push([t.deliveries.status, status === "none" ? t.deliveries.noAnswer : status]);
  return (
    <RangeDialog
      texts={t.sendAgain.shown}
      read={() => toRange(webhook.webhookId, wanted)}
      onClose={onClose}
    >
      <p>{t.sendAgain.text}</p>
      <Facts of={facts} />
    </RangeDialog>
  );
}
