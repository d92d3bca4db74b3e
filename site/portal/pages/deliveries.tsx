import { useEffect, useRef } from "preact/hooks";
import { PAGE_LIMIT } from "../../../src/contract/limits.ts";
import { DAY_MS } from "../../../src/contract/time.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { ReplayShownDialog, replayable } from "../actions/redeliver.tsx";
import { listDeliveries } from "../api.ts";
import { filtersOf, foundBy, isNarrowed, periodOf, rangeOf, toApiQuery } from "../filters.ts";
import { useDeliveries } from "../look-through.ts";
import { Empty } from "../parts/basics.tsx";
import { DeliveryRows } from "../parts/delivery-rows.tsx";
import { DialogButton } from "../parts/dialog.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Filters, Looking, NoneFound } from "../parts/filters.tsx";
import { Pages } from "../parts/pages.tsx";
import { deliveriesHref, goTo } from "../route.ts";
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
        <Filters
          query={query}
          states={[["waiting", t.deliveries.waiting], ...Object.entries(t.deliveryStates)]}
          onChosen={(chosen) => goTo(deliveriesHref(id, chosen))}
        />
        <List webhook={webhook} query={query} eventId={eventId} workspace={workspace} />
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
  const id = webhook.webhookId;
  const list = (page: URLSearchParams) => listDeliveries(id, page);
  const search = useDeliveries(list, "deliveries", id, toApiQuery(query));
  const filters = filtersOf(query);
  const page = search.data;
  const isEmpty = page?.items.length === 0;
  const isLooking = search.isLooking && (page === null || (isEmpty && page.nextCursor !== null));
  const looking = <Looking search={search} {...periodToSearch(webhook, query, workspace)} />;
  const none = isNarrowed(query) ? (
    <NoneFound query={query} search={search} all={deliveriesHref(id)} />
  ) : (
    <Empty title={t.deliveries.empty} text={t.deliveries.emptyText} />
  );
  if (page === null) return isLooking ? looking : <LoadState loaded={search} />;
  return (
    <>
      {!isLooking && <LoadState loaded={search} />}
      {!isEmpty && <ReplayShown webhook={webhook} query={query} />}
      {/* It stays when the list becomes empty, because it also has what was resent. */}
      <DeliveryRows
        webhook={webhook}
        deliveries={page.items}
        empty={isLooking ? looking : none}
        query={{ ...filters, cursor: query.get("cursor") }}
        current={eventId}
      />
      {!isEmpty && (
        <Pages
          label={t.deliveries.pages}
          cursor={query.get("cursor")}
          next={page.nextCursor}
          older={page.items.length < PAGE_LIMIT.default ? t.deliveries.lookOn : undefined}
          href={(cursor) => deliveriesHref(id, { ...filters, cursor })}
        />
      )}
    </>
  );
}

/** Returns the period in which the webhook can have deliveries that match. */
function periodToSearch(webhook: WebhookDetails, query: URLSearchParams, workspace: Workspace) {
  const { since, until } = periodOf(query);
  return {
    to: Math.min(Date.now(), Date.parse(until ?? "9999")),
    from: Math.max(
      Date.now() - workspace.retentionDays * DAY_MS,
      Date.parse(webhook.createdAt),
      Date.parse(since ?? "1970"),
    ),
  };
}

/** Offers to send the listed events again, unless it is a single one, which has its own button. */
function ReplayShown({ webhook, query }: { webhook: WebhookDetails; query: URLSearchParams }) {
  const states = replayable(query.get("state"));
  // A found delivery has a button in its row.
  const isFound = foundBy(query) !== "";
  if (isReadOnly() || webhook.state === "disabled" || isFound || states.length === 0) return null;
  return (
    <p class="list-action">
      <DialogButton class="quiet" label={t.sendAgain.shown.button}>
        {(onClose) => (
          <ReplayShownDialog
            webhookIds={[webhook.webhookId]}
            wanted={rangeOf(query, states)}
            onClose={onClose}
          />
        )}
      </DialogButton>
    </p>
  );
}
