import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { PAGE_LIMIT, REDELIVERY_MAX_AGE_MS } from "../../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS } from "../../../src/contract/time.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { ResendShownDialog, resendable } from "../actions/redeliver.tsx";
import { filtersOf, isNarrowed, periodOf, toApiQuery, WHEN_DAY } from "../filters.ts";
import { formatDay, formatTime } from "../format.ts";
import { type Search, useDeliveries } from "../look-through.ts";
import { Empty } from "../parts/basics.tsx";
import { Choice, type Options } from "../parts/choice.tsx";
import { DeliveryRows } from "../parts/delivery-rows.tsx";
import { DialogButton } from "../parts/dialog.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Pages } from "../parts/pages.tsx";
import { Progress, shareOf } from "../parts/progress.tsx";
import { deliveriesHref, goTo, type Query } from "../route.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { Delivery } from "./delivery.tsx";

interface Props {
  webhook: WebhookDetails;
  /** The filters and the page. */
  query: URLSearchParams;
  /** The event of the delivery that is open; null for none. */
  eventId: string | null;
  workspace: Workspace;
}

/** The deliveries of a webhook, newest first, filtered, a page at a time; the one that is open beside them. */
export function Deliveries({ webhook, query, eventId, workspace }: Props) {
  const id = webhook.webhookId;
  const filters = filtersOf(query);
  const back = deliveriesHref(id, { ...filters, cursor: query.get("cursor") });
  useFocusOnReturn(eventId);
  return (
    <div class={eventId === null ? "split" : "split open"}>
      <div class="list">
        <Filters webhook={webhook} query={query} />
        {query.has("unknown") ? (
          <Empty title={t.deliveries.noneAtAll} text={t.deliveries.findFault}>
            <ShowAll webhook={webhook} />
          </Empty>
        ) : (
          <List webhook={webhook} query={query} eventId={eventId} workspace={workspace} />
        )}
      </div>
      {eventId !== null && (
        <Delivery
          key={eventId}
          webhook={webhook}
          eventId={eventId}
          back={back}
          retentionDays={workspace.retentionDays}
        />
      )}
    </div>
  );
}

/** Returns the focus to the delivery that was open. */
function useFocusOnReturn(eventId: string | null): void {
  const former = useRef<string | null>(null);
  useEffect(() => {
    if (eventId === null && former.current !== null)
      document
        .querySelector<HTMLElement>(`[data-event="${CSS.escape(former.current)}"]`)
        ?.focus({ preventScroll: true });
    former.current = eventId;
  }, [eventId]);
}

function List({ webhook, query, eventId, workspace }: Props) {
  const search = useDeliveries(webhook.webhookId, toApiQuery(query));
  const filters = filtersOf(query);
  const page = search.data;
  const isEmpty = page?.items.length === 0;
  const isUnknown = page === null || (isEmpty && page.nextCursor !== null);
  if (search.isLooking && isUnknown)
    return (
      <Looking
        webhook={webhook}
        query={query}
        search={search}
        retentionDays={workspace.retentionDays}
      />
    );
  return (
    <>
      <LoadState loaded={search} />
      {isEmpty &&
        (isNarrowed(query) ? (
          <NoneFound webhook={webhook} query={query} search={search} />
        ) : (
          <Empty title={t.deliveries.empty} text={t.deliveries.emptyText} />
        ))}
      {page && !isEmpty && (
        <>
          <ResendShown webhook={webhook} query={query} />
          <DeliveryRows
            webhook={webhook}
            deliveries={page.items}
            query={{ ...filters, cursor: query.get("cursor") }}
            current={eventId}
          />
          <Pages
            label={t.deliveries.pages}
            cursor={query.get("cursor")}
            next={page.nextCursor}
            older={page.items.length < PAGE_LIMIT.default ? t.deliveries.lookOn : undefined}
            href={(cursor) => deliveriesHref(webhook.webhookId, { ...filters, cursor })}
          />
        </>
      )}
    </>
  );
}

/** Offers to send the listed events again, unless it is a single one, which has its own button. */
function ResendShown({ webhook, query }: { webhook: WebhookDetails; query: URLSearchParams }) {
  const states = resendable(query.get("state"));
  const isSingle = query.has("eventId") || query.has("leadId");
  if (isReadOnly() || webhook.state === "disabled" || isSingle || states.length === 0) return null;
  const { since, until } = periodOf(query);
  // Older events cannot be sent again. An hour of tolerance, because clocks differ.
  const oldest = new Date(Date.now() - REDELIVERY_MAX_AGE_MS + HOUR_MS).toISOString();
  const wanted = {
    since: since === null || since < oldest ? oldest : since,
    until,
    states,
    type: query.get("type") as WebhookEvent | null,
    status: query.get("status"),
  };
  return (
    <p class="list-action">
      <DialogButton class="quiet" label={t.sendAgain.shown.button}>
        {(onClose) => <ResendShownDialog webhook={webhook} wanted={wanted} onClose={onClose} />}
      </DialogButton>
    </p>
  );
}

interface LookingProps {
  webhook: WebhookDetails;
  query: URLSearchParams;
  search: Search;
  /** How long events are kept, in days. */
  retentionDays: number;
}

/** Shows the progress of the search for a match. */
function Looking({ webhook, query, search, retentionDays }: LookingProps) {
  const { since, until } = periodOf(query);
  const to = Math.min(Date.now(), Date.parse(until ?? "9999"));
  const from = Math.max(
    Date.now() - retentionDays * DAY_MS,
    Date.parse(webhook.createdAt),
    Date.parse(since ?? "1970"),
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
function NoneFound({ webhook, query, search }: Omit<LookingProps, "retentionDays">) {
  const { data, lookedBackTo, goOn } = search;
  const { since, until } = periodOf(query);
  const isWhole = data?.nextCursor === null || lookedBackTo === null;
  const isNever = since !== null && until !== null && since >= until;
  const none = query.has("cursor") ? t.deliveries.noneOlder : t.deliveries.noneAtAll;
  return (
    <Empty
      title={isWhole ? none : t.deliveries.noneSoFar}
      text={
        isWhole
          ? isNever
            ? t.deliveries.untilFirst
            : ""
          : t.deliveries.lookedBackTo(formatTime(lookedBackTo))
      }
    >
      <div class="buttons">
        {!isWhole && (
          <button type="button" class="primary" onClick={goOn}>
            {t.goOn}
          </button>
        )}
        <ShowAll webhook={webhook} />
      </div>
    </Empty>
  );
}

function ShowAll({ webhook }: { webhook: WebhookDetails }) {
  return (
    <a class="button" href={deliveriesHref(webhook.webhookId)}>
      {t.deliveries.showAll}
    </a>
  );
}

const STATUS_CLASSES = ["2xx", "3xx", "4xx", "5xx"] as const;

/** The filters: a row, or, where there is little room, behind one button. */
function Filters({ webhook, query }: { webhook: WebhookDetails; query: URLSearchParams }) {
  const [isOpen, setOpen] = useState(false);
  const panel = useId();
  const set = (changed: Query) =>
    goTo(deliveriesHref(webhook.webhookId, { ...filtersOf(query), ...changed }));
  const count = Object.values(filtersOf(query)).filter(Boolean).length;
  const statuses: Options = STATUS_CLASSES.map((name) => [name, name]);
  const when = query.get("when") ?? (query.has("since") || query.has("until") ? "custom" : "");
  const days: Options = WHEN_DAY.test(when) ? [[when, formatDay(when)]] : [];
  return (
    <>
      <button
        type="button"
        class="filters-button"
        aria-expanded={isOpen}
        aria-controls={panel}
        onClick={() => setOpen(!isOpen)}
      >
        {t.deliveries.filter(count)}
      </button>
      <div id={panel} class={isOpen ? "filters shown" : "filters"}>
        <Choice
          label={t.deliveries.state}
          all={t.deliveries.all}
          value={query.get("state")}
          options={Object.entries(t.deliveryStates)}
          onChosen={(state) => set({ state })}
        />
        <Choice
          label={t.deliveries.when}
          all={t.deliveries.anyTime}
          value={when}
          options={[
            ["today", t.deliveries.today],
            ["yesterday", t.deliveries.yesterday],
            ["week", t.deliveries.week],
            ...days,
            ["custom", t.deliveries.custom],
          ]}
          onChosen={(chosen) => set(toPeriod(chosen))}
        />
        <Choice
          label={t.deliveries.type}
          all={t.deliveries.all}
          value={query.get("type")}
          options={Object.entries(t.types)}
          onChosen={(type) => set({ type })}
        />
        <Choice
          label={t.deliveries.status}
          all={t.deliveries.allStatuses}
          value={query.get("status")}
          options={[...statuses, ["none", t.deliveries.noAnswer]]}
          onChosen={(status) => set({ status })}
        />
        <Find webhook={webhook} query={query} />
        {when === "custom" && (
          <>
            <TimeField
              label={t.deliveries.since}
              value={query.get("since")}
              onChosen={(since) => set({ since })}
            />
            <TimeField
              label={t.deliveries.until}
              value={query.get("until")}
              onChosen={(until) => set({ until })}
            />
          </>
        )}
      </div>
    </>
  );
}

/** The parameters for a choice of the period. "Custom" starts with the last day. */
function toPeriod(chosen: string): Query {
  const none = { when: null, since: null, until: null };
  if (chosen !== "custom") return { ...none, when: chosen };
  return { ...none, since: new Date(Date.now() - DAY_MS).toISOString() };
}

interface TimeFieldProps {
  label: string;
  /** The time in ISO 8601. */
  value: string | null;
  onChosen(value: string | null): void;
}

/** A time in UTC, as the days of the chart are. */
function TimeField({ label, value, onChosen }: TimeFieldProps) {
  return (
    <Field
      label={label}
      isTime
      value={value?.slice(0, 16) ?? ""}
      onTyped={(typed) => onChosen(typed && new Date(`${typed}Z`).toISOString())}
    />
  );
}

/** Finds the delivery of one event, by its id or that of its lead, whatever else is filtered. */
function Find({ webhook, query }: { webhook: WebhookDetails; query: URLSearchParams }) {
  const find = (id: string) => {
    const name = { evt_: "eventId", lea_: "leadId" }[id.slice(0, 4)] ?? "unknown";
    goTo(deliveriesHref(webhook.webhookId, { [name]: id }));
  };
  return (
    <Field
      label={t.deliveries.find}
      placeholder={t.deliveries.findHint}
      value={query.get("eventId") ?? query.get("leadId") ?? query.get("unknown") ?? ""}
      onTyped={find}
    />
  );
}

interface FieldProps {
  label: string;
  isTime?: boolean;
  placeholder?: string;
  value: string;
  onTyped(value: string): void;
}

/** A field that shows `value`, and keeps what is being typed while the page is refreshed. */
function Field({ label, isTime = false, value, onTyped, ...more }: FieldProps) {
  const field = useRef<HTMLInputElement>(null);
  // A layout effect runs before the next input; a later one would undo what has been typed since.
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
        onChange={({ currentTarget }) => onTyped(currentTarget.value.trim())}
      />
    </label>
  );
}
