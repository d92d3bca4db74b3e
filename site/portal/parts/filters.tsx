import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { LEAD_SEARCH_MAX_LENGTH } from "../../../src/contract/limits.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import { filtersOf, foundBy, toFind } from "../filters.ts";
import { formatTime, toLocalField } from "../format.ts";
import type { Search } from "../look-through.ts";
import type { Query } from "../route.ts";
import { t } from "../text.ts";
import { Empty } from "./basics.tsx";
import { Choice, type Options } from "./choice.tsx";
import { Progress, shareOf } from "./progress.tsx";

const STATUS_CLASSES = ["2xx", "3xx", "4xx", "5xx"] as const;

interface FiltersProps {
  query: URLSearchParams;
  /** The states to choose from. */
  states: Options;
  /** The webhooks to choose from; absent if the list is of one. */
  webhooks?: Options;
  /** Shows the list with other filters. */
  onChosen(filters: Query): void;
}

/** The filters of a list of deliveries: a row, or, where there is little room, behind one button. */
export function Filters({ query, states, webhooks, onChosen }: FiltersProps) {
  const [isOpen, setOpen] = useState(false);
  const panel = useId();
  const set = (changed: Query) => onChosen({ ...filtersOf(query), ...changed });
  const count = Object.values(filtersOf(query)).filter(Boolean).length;
  const statuses: Options = STATUS_CLASSES.map((name) => [name, name]);
  const when = query.get("when") ?? (query.has("since") || query.has("until") ? "custom" : "");
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
        {/* It finds something whatever else is filtered. */}
        <Field
          label={t.deliveries.find}
          placeholder={t.deliveries.findHint}
          value={foundBy(query)}
          onTyped={(text) => onChosen(toFind(text))}
        />
        {webhooks && (
          <Choice
            label={t.home.webhook}
            all={t.deliveries.all}
            value={query.get("webhookId")}
            options={webhooks}
            onChosen={(webhookId) => set({ webhookId })}
          />
        )}
        <Choice
          label={t.deliveries.state}
          all={t.deliveries.all}
          value={query.get("state")}
          options={states}
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

/** A time in the reader's time zone. */
function TimeField({ label, value, onChosen }: TimeFieldProps) {
  return (
    <Field
      label={label}
      isTime
      value={value === null ? "" : toLocalField(Date.parse(value))}
      onTyped={(typed) => onChosen(typed && new Date(typed).toISOString())}
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
    <label class={isTime ? "field" : "field find"}>
      {label}
      <input
        ref={field}
        {...(isTime
          ? { type: "datetime-local" as const }
          : { type: "search" as const, maxLength: LEAD_SEARCH_MAX_LENGTH })}
        {...more}
        onChange={({ currentTarget }) => onTyped(currentTarget.value.trim())}
      />
    </label>
  );
}

interface LookingProps {
  search: Search<unknown>;
  /** The period that is searched, from its end back to its beginning. */
  to: number;
  from: number;
}

/** Shows the progress of the search for a match. */
export function Looking({ search, to, from }: LookingProps) {
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

interface NoneFoundProps {
  search: Search<unknown>;
  query: URLSearchParams;
  /** The address of the list without filters. */
  all: string;
}

/** Says that nothing matches, or nothing so far: the search was stopped. */
export function NoneFound({ search, query, all }: NoneFoundProps) {
  const { data, lookedBackTo, goOn } = search;
  const { since, until } = filtersOf(query);
  const isWhole = data?.nextCursor === null || lookedBackTo === null;
  const isNever = since !== null && until !== null && since >= until;
  const none = query.has("cursor") ? t.deliveries.noneOlder : t.deliveries.noneAtAll;
  const reason = isNever
    ? t.deliveries.untilFirst
    : query.has("lead")
      ? t.deliveries.noLead(query.get("lead") ?? "")
      : "";
  return (
    <Empty
      title={isWhole ? none : t.deliveries.noneSoFar}
      text={isWhole ? reason : t.deliveries.lookedBackTo(formatTime(lookedBackTo))}
    >
      <div class="buttons">
        {!isWhole && (
          <button type="button" class="primary" onClick={goOn}>
            {t.goOn}
          </button>
        )}
        <a class="button" href={all}>
          {t.deliveries.showAll}
        </a>
      </div>
    </Empty>
  );
}
