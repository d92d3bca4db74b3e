import { redeliver } from "../api.ts";
import { formatOutcome, formatTime } from "../format.ts";
import { type Loaded, useAction } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Badge, Empty, Loading, Time } from "../parts/basics.tsx";
import { ActionFault, LoadFault } from "../parts/faults.tsx";
import { Pages } from "../parts/pages.tsx";
import { deliveryHref, goTo, webhookHref } from "../route.ts";
import { DELIVERY_STATES, type Delivery, type DeliveryPage, type Webhook } from "../shapes.ts";
import { t } from "../text.ts";

interface Props {
  webhook: Webhook;
  /** The filters and the page. */
  query: URLSearchParams;
  loaded: Loaded<DeliveryPage>;
  onDone(): void;
}

/** The deliveries to a subscription, newest first, filtered, a page at a time. */
export function Deliveries({ webhook, query, loaded, onDone }: Props) {
  const { isBusy, fault, run } = useAction();
  const isNarrowed = [...query.keys()].length > 0;
  const page = loaded.data;
  const isEmpty = page?.data.length === 0 && !loaded.isStale;
  const sendAgain = ({ event_id }: Delivery) =>
    run(async () => {
      const { count } = await redeliver(webhook.id, { event_ids: [event_id] });
      announce(count > 0 ? t.sendAgain.one : t.sendAgain.none);
      onDone();
    });
  return (
    <section>
      <h2>{t.deliveries.title}</h2>
      <Filters webhook={webhook} query={query} />
      <LoadFault loaded={loaded} />
      <ActionFault fault={fault} />
      {page === null && !loaded.fault && <Loading />}
      {isEmpty && isNarrowed && (
        <Empty {...(page.has_more ? t.deliveries.noneSoFar : t.deliveries.noneAtAll)}>
          <a class="button" href={webhookHref(webhook.id)}>
            {t.deliveries.showAll}
          </a>
        </Empty>
      )}
      {isEmpty && !isNarrowed && <Empty title={t.deliveries.empty} text={t.deliveries.emptyText} />}
      {page !== null && page.data.length > 0 && (
        <table class="rows" aria-busy={loaded.isStale}>
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
            {page.data.map((delivery) => (
              <Row
                key={delivery.event_id}
                {...{ webhook, delivery, isBusy }}
                onSendAgain={() => sendAgain(delivery)}
              />
            ))}
          </tbody>
        </table>
      )}
      {page && (
        <Pages
          label={t.deliveries.pages}
          cursor={query.get("cursor")}
          next={page.next_cursor}
          href={(cursor) =>
            webhookHref(webhook.id, { state: query.get("state"), type: query.get("type"), cursor })
          }
        />
      )}
    </section>
  );
}

function Filters({ webhook, query }: { webhook: Webhook; query: URLSearchParams }) {
  const filter = (name: "state" | "type", value: string) =>
    goTo(
      webhookHref(webhook.id, {
        state: query.get("state"),
        type: query.get("type"),
        [name]: value,
      }),
    );
  const field = (name: "state" | "type", label: string, options: [string, string][]) => (
    <label class="field">
      {label}
      <select
        value={query.get(name) ?? ""}
        onInput={({ currentTarget }) => filter(name, currentTarget.value)}
      >
        <option value="">{t.deliveries.all}</option>
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <div class="filters">
      {field(
        "state",
        t.deliveries.state,
        DELIVERY_STATES.map((state) => [state, t.deliveryStates[state]]),
      )}
      {field("type", t.deliveries.kind, Object.entries(t.kinds))}
    </div>
  );
}

function Row(props: {
  webhook: Webhook;
  delivery: Delivery;
  isBusy: boolean;
  onSendAgain(): void;
}) {
  const { webhook, delivery, isBusy, onSendAgain } = props;
  const { state, type, created_at, attempts, last_attempt, due_at, event_id } = delivery;
  const kind = t.kinds[type] ?? type;
  const isWaiting = state === "pending" && (webhook.state === "failing" || isAhead(due_at));
  const mayBeSent = webhook.state !== "disabled" && (state !== "pending" || isWaiting);
  return (
    <tr>
      <td>
        <Badge tone={state}>{t.deliveryStates[state]}</Badge>
      </td>
      <th scope="row">
        <a href={deliveryHref(webhook.id, event_id)}>{kind}</a>
        <span class="mono small">{event_id}</span>
      </th>
      <td data-name={t.deliveries.recorded}>
        <Time at={created_at} />
      </td>
      <td data-name={t.deliveries.attempts}>{attempts}</td>
      <td data-name={t.deliveries.lastAnswer}>
        {last_attempt ? formatOutcome(last_attempt) : "–"}
        {due_at && isAhead(due_at) && (
          <span class="small">
            {t.deliveries.next} <Time at={due_at} />
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
              formatTime(created_at),
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
