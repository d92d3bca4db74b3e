import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { PAGE_LIMIT } from "../../../src/contract/limits.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import type {
  DeliveryView as Delivery,
  WebhookView as Webhook,
} from "../../../src/history/views.ts";
import { redeliver } from "../api.ts";
import { formatOutcome, formatTime } from "../format.ts";
import { useAction } from "../load.ts";
import type { Search } from "../look-through.ts";
import { announce } from "../parts/announce.tsx";
import { DeliveryState, Empty, Time } from "../parts/basics.tsx";
import { LoadState, SendFault } from "../parts/faults.tsx";
import { Pages } from "../parts/pages.tsx";
import { Progress, shareOf } from "../parts/progress.tsx";
import { localTime } from "../parts/since.tsx";
import { deliveryHref, goTo, webhookHref } from "../route.ts";
import { t } from "../text.ts";

interface Props {
  webhook: Webhook;
  /** The filters and the page. */
  query: URLSearchParams;
  search: Search;
  /** How long events are kept, in days. */
  retentionDays: number;
  onDone(): void;
}

/** The deliveries to a subscription, newest first, filtered, a page at a time. */
export function Deliveries({ webhook, query, search, retentionDays, onDone }: Props) {
  const { isBusy, fault, run } = useAction();
  const isNarrowed = [...query.keys()].length > 0;
  const page = search.data;
  const isEmpty = page?.items.length === 0 && !search.isStale;
  const isUnknown = page === null || search.isStale || (isEmpty && page.nextCursor !== null);
  const sendAgain = ({ eventId }: Delivery) =>
    run(async () => {
      const { count } = await redeliver(webhook.webhookId, { eventIds: [eventId] });
      announce(count > 0 ? t.sendAgain.one : t.sendAgain.none);
      onDone();
    });
  return (
    <section>
      <h2>{t.deliveries.title}</h2>
      <Filters webhook={webhook} query={query} />
      {search.isLooking && isUnknown ? (
        <Looking {...{ webhook, query, search, retentionDays }} />
      ) : (
        <LoadState loaded={search} />
      )}
      <SendFault fault={fault} />
      {isEmpty && isNarrowed && !(search.isLooking && isUnknown) && (
        <NoneFound {...{ webhook, query, search }} />
      )}
      {isEmpty && !isNarrowed && <Empty title={t.deliveries.empty} text={t.deliveries.emptyText} />}
      {page !== null && page.items.length > 0 && (
        <table class="rows" aria-busy={search.isStale}>
          <thead>
            <tr>
              <th scope="col">{t.deliveries.state}</th>
              <th scope="col">{t.deliveries.kind}</th>
              <th scope="col">{t.deliveries.recorded}</th>
              <th scope="col">{t.deliveries.attempts}</th>
              <th scope="col">{t.deliveries.lastAnswer}</th>
              <td />
            </tr>
          </thead>
          <tbody>
            {page.items.map((delivery) => (
              <Row
                key={delivery.eventId}
                {...{ webhook, delivery, isBusy }}
                onSendAgain={() => sendAgain(delivery)}
              />
            ))}
          </tbody>
        </table>
      )}
      {page && page.items.length > 0 && (
        <Pages
          label={t.deliveries.pages}
          cursor={query.get("cursor")}
          next={page.nextCursor}
          older={page.items.length < PAGE_LIMIT.default ? t.deliveries.lookOn : undefined}
          href={(cursor) => webhookHref(webhook.webhookId, { ...filtersOf(query), cursor })}
        />
      )}
    </section>
  );
}

/** How far the search for a match is. */
function Looking({ webhook, query, search, retentionDays }: Omit<Props, "onDone">) {
  const to = Math.min(Date.now(), Date.parse(query.get("until") ?? "9999"));
  const from = Math.max(
    Date.now() - retentionDays * DAY_MS,
    Date.parse(webhook.createdAt),
    Date.parse(query.get("since") ?? "1970"),
  );
  const time = search.lookedBackTo ?? to;
  return (
    <div class="note">
      <Progress label={t.deliveries.looking} done={shareOf(time, to, from)}>
        {t.deliveries.looking} {t.deliveries.lookedBackTo(formatTime(time))}
      </Progress>
      <button type="button" onClick={search.stop}>
        {t.stop}
      </button>
    </div>
  );
}

/** Says that nothing matches, or nothing so far: the search was stopped. */
function NoneFound({ webhook, query, search }: Pick<Props, "webhook" | "query" | "search">) {
  const { data, lookedBackTo, goOn } = search;
  const isWhole = data?.nextCursor === null || lookedBackTo === null;
  const isNever = (query.get("since") ?? "") >= (query.get("until") ?? "9999");
  const why = isNever ? t.deliveries.untilFirst : "";
  const none = query.has("cursor") ? t.deliveries.noneOlder : t.deliveries.noneAtAll;
  return (
    <Empty
      title={isWhole ? none : t.deliveries.noneSoFar}
      text={isWhole ? why : t.deliveries.lookedBackTo(formatTime(lookedBackTo))}
    >
      <div class="buttons">
        {!isWhole && (
          <button type="button" class="primary" onClick={goOn}>
            {t.goOn}
          </button>
        )}
        <a class="button" href={webhookHref(webhook.webhookId)}>
          {t.deliveries.showAll}
        </a>
      </div>
    </Empty>
  );
}

const FILTERS = ["state", "type", "status", "since", "until", "eventId", "leadId"] as const;
type Filter = (typeof FILTERS)[number];

/** The filters of an address, without the page. */
function filtersOf(query: URLSearchParams): Record<string, string | null> {
  return Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]));
}

function Filters({ webhook, query }: { webhook: Webhook; query: URLSearchParams }) {
  const filter = (changed: Partial<Record<Filter, string | null>>) =>
    goTo(webhookHref(webhook.webhookId, { ...filtersOf(query), ...changed }));
  const choice = (name: Filter, label: string, all: string, options: [string, string][]) => (
    <label class="field">
      {label}
      <select
        value={query.get(name) ?? ""}
        onInput={({ currentTarget }) => filter({ [name]: currentTarget.value })}
      >
        <option value="">{all}</option>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
  const time = (name: Filter, label: string) => (
    <Field
      isTime
      label={label}
      value={query.has(name) ? localTime(Date.parse(query.get(name) ?? "")) : ""}
      onTyped={(value) => filter({ [name]: value && new Date(value).toISOString() })}
    />
  );
  const classes = ["2xx", "3xx", "4xx", "5xx"].map((each): [string, string] => [each, each]);
  const statuses: typeof classes = [...classes, ["none", t.deliveries.noAnswer]];
  return (
    <div class="filters">
      {choice("state", t.deliveries.state, t.deliveries.all, Object.entries(t.deliveryStates))}
      {choice("type", t.deliveries.kind, t.deliveries.all, Object.entries(t.kinds))}
      {choice("status", t.deliveries.status, t.deliveries.allStatuses, statuses)}
      <Find webhook={webhook} query={query} />
      {time("since", t.deliveries.since)}
      {time("until", t.deliveries.until)}
    </div>
  );
}

/** Finds the delivery of one event, by its id or that of its lead, whatever else is filtered. */
function Find({ webhook, query }: { webhook: Webhook; query: URLSearchParams }) {
  const [isWrong, setWrong] = useState(false);
  const find = (id: string) => {
    const name = { evt_: "eventId", lea_: "leadId", "": "eventId" }[id.slice(0, 4)];
    setWrong(name === undefined);
    if (name !== undefined) goTo(webhookHref(webhook.webhookId, { [name]: id }));
  };
  return (
    <Field
      label={t.deliveries.find}
      placeholder={t.deliveries.findHint}
      value={query.get("eventId") ?? query.get("leadId") ?? ""}
      fault={isWrong ? t.deliveries.findFault : null}
      onTyped={find}
    />
  );
}

interface FieldProps {
  label: string;
  /** Whether it asks for a time, instead of text. */
  isTime?: boolean;
  placeholder?: string;
  value: string;
  fault?: string | null;
  onTyped(value: string): void;
}

/** A field that shows `value`, and keeps what is being typed while the page is refreshed. */
function Field({ label, isTime = false, value, fault = null, onTyped, ...more }: FieldProps) {
  const field = useRef<HTMLInputElement>(null);
  const faultId = useId();
  // Before the next input: an effect that comes later would undo what has been typed meanwhile.
  useLayoutEffect(() => {
    if (field.current) field.current.value = value;
  }, [value]);
  return (
    <label class="field">
      {label}
      <input
        ref={field}
        {...(isTime ? { type: "datetime-local" as const } : { type: "search" as const })}
        {...more}
        aria-invalid={fault !== null}
        aria-describedby={faultId}
        onChange={({ currentTarget }) => onTyped(currentTarget.value.trim())}
      />
      <small id={faultId} class="fault" aria-live="polite">
        {fault}
      </small>
    </label>
  );
}

function Row(props: {
  webhook: Webhook;
  delivery: Delivery;
  isBusy: boolean;
  onSendAgain(): void;
}) {
  const { webhook, delivery, isBusy, onSendAgain } = props;
  const { state, type, createdAt, attempts, lastAttempt, dueAt, eventId } = delivery;
  const kind = t.kinds[type] ?? type;
  const isWaiting = state === "pending" && (webhook.state === "failing" || isAhead(dueAt));
  const mayBeSent =
    webhook.state !== "disabled" && state !== "test" && (state !== "pending" || isWaiting);
  return (
    <tr>
      <td class="row-state">
        <DeliveryState delivery={delivery} />
      </td>
      <th scope="row">
        <a href={deliveryHref(webhook.webhookId, eventId)}>{kind}</a>
        <span class="mono small">{eventId}</span>
      </th>
      <td>
        <Time at={createdAt} />
      </td>
      <td class="row-attempts">{attempts}</td>
      <td class="row-answer">
        {lastAttempt ? formatOutcome(lastAttempt) : "–"}
        {dueAt && isAhead(dueAt) && (
          <span class="small">
            {t.deliveries.next} <Time at={dueAt} />
          </span>
        )}
      </td>
      <td class="row-action">
        {mayBeSent && (
          <button
            type="button"
            class="quiet"
            disabled={isBusy}
            aria-label={(isWaiting ? t.deliveries.sendNowOf : t.deliveries.sendAgainOf)(
              kind,
              formatTime(createdAt),
            )}
            onClick={onSendAgain}
          >
            {isWaiting ? t.deliveries.sendNow : t.deliveries.sendAgain}
          </button>
        )}
      </td>
    </tr>
  );
}

function isAhead(time: string | null): boolean {
  return time !== null && Date.parse(time) > Date.now();
}
