import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { DAY_MS } from "../../../src/contract/time.ts";
import type { FailureView, WebhookView } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { ReplayShownDialog } from "../actions/redeliver.tsx";
import { countFailures, listFailures, listWebhooks } from "../api.ts";
import { filtersOf, foundBy, isNarrowed, periodOf, rangeOf, toApiQuery } from "../filters.ts";
import { formatMoment, formatOutcome } from "../format.ts";
import { useLoad } from "../load.ts";
import { useDeliveries } from "../look-through.ts";
import { DeliveryState, Empty, Moment } from "../parts/basics.tsx";
import { DialogButton } from "../parts/dialog.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Filters, Looking, NoneFound } from "../parts/filters.tsx";
import { Heading } from "../parts/heading.tsx";
import { Pages } from "../parts/pages.tsx";
import { RunningReplays } from "../parts/replays.tsx";
import { ResendResult, useResends } from "../parts/resend.tsx";
import { RowsTable } from "../parts/rows.tsx";
import { deliveryHref, failuresHref, goTo } from "../route.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { nameOf, sumFailures } from "../webhook.ts";

const STATES = ["retrying", "exhausted"] as const;

interface Props {
  /** The filters and the page. */
  query: URLSearchParams;
  workspace: Workspace;
}

/** The deliveries of all webhooks that are failing, or have failed for good; newest first, filtered. */
export function Failures({ query, workspace }: Props) {
  const webhooks = useLoad(listWebhooks, "webhooks").data ?? [];
  return (
    <>
      <Heading title={t.failures.title}>{t.failures.title}</Heading>
      <p class="lead">{t.failures.lead}</p>
      <div class="list">
        <Filters
          query={query}
          states={STATES.map((name) => [name, t.deliveryStates[name]])}
          webhooks={webhooks.map((webhook) => [webhook.webhookId, nameOf(webhook)])}
          onChosen={(chosen) => goTo(failuresHref(chosen))}
        />
        {foundBy(query) === "" && <Counts query={query} webhooks={webhooks} />}
        <List query={query} workspace={workspace} webhooks={webhooks} />
      </div>
    </>
  );
}

interface CountsProps {
  query: URLSearchParams;
  webhooks: WebhookView[];
}

/** Says how many deliveries the filters find, offers to resend them all, and shows how that goes. */
function Counts({ query, webhooks }: CountsProps) {
  const [begun, setBegun] = useState<string[]>([]);
  const wanted = toApiQuery(query);
  wanted.delete("cursor");
  const { data } = useLoad(() => countFailures(wanted), `failure counts ${wanted}`);
  const { retrying, exhausted, hasMore } = sumFailures(data ?? []);
  const found = new Set((data ?? []).map(({ webhookId }) => webhookId));
  const isActive = ({ webhookId, state }: WebhookView) =>
    state !== "disabled" && found.has(webhookId);
  const ids = webhooks.filter(isActive).map(({ webhookId }) => webhookId);
  const state = query.get("state");
  const states = STATES.filter((one) => state === null || one === state);
  const parts = [
    retrying > 0 && t.failures.retrying(t.failures.count(retrying, hasMore), retrying),
    exhausted > 0 && t.failures.exhausted(t.failures.count(exhausted, hasMore), exhausted),
  ];
  return (
    <>
      {webhooks
        .filter(({ webhookId }) => begun.includes(webhookId))
        .map((webhook) => (
          <RunningReplays key={webhook.webhookId} webhook={webhook} name={nameOf(webhook)} />
        ))}
      <div class="counts">
        <p>{parts.filter(Boolean).join(" · ")}</p>
        {!isReadOnly() && retrying + exhausted > 0 && ids.length > 0 && (
          <DialogButton class="quiet" label={t.sendAgain.shown.button}>
            {(onClose) => (
              <ReplayShownDialog
                webhookIds={ids}
                wanted={rangeOf(query, states)}
                onBegun={() => setBegun(ids)}
                onClose={onClose}
              />
            )}
          </DialogButton>
        )}
      </div>
    </>
  );
}

interface ListProps extends Props {
  webhooks: WebhookView[];
}

function List({ query, workspace, webhooks }: ListProps) {
  const search = useDeliveries(listFailures, "failures", "all", toApiQuery(query));
  const page = search.data;
  const isEmpty = page?.items.length === 0;
  const isLooking = search.isLooking && (page === null || (isEmpty && page.nextCursor !== null));
  const { since, until } = periodOf(query);
  const kept = Date.now() - workspace.retentionDays * DAY_MS;
  const looking = (
    <Looking
      search={search}
      to={Math.min(Date.now(), Date.parse(until ?? "9999"))}
      from={Math.max(kept, Date.parse(since ?? "1970"))}
    />
  );
  const none = isNarrowed(query) ? (
    <NoneFound search={search} query={query} all={failuresHref()} />
  ) : (
    <Empty title={t.failures.empty} text={t.failures.emptyText} />
  );
  if (page === null) return isLooking ? looking : <LoadState loaded={search} />;
  return (
    <>
      {!isLooking && <LoadState loaded={search} />}
      {/* It stays when the list becomes empty, because it also has what was resent. */}
      <FailureRows
        failures={page.items}
        empty={isLooking ? looking : none}
        state={query.get("state")}
        webhooks={webhooks}
      />
      {!isEmpty && (
        <Pages
          label={t.failures.pages}
          cursor={query.get("cursor")}
          next={page.nextCursor}
          href={(cursor) => failuresHref({ ...filtersOf(query), cursor })}
        />
      )}
    </>
  );
}

interface RowsProps {
  failures: FailureView[];
  /** Shown if there is none. */
  empty?: ComponentChildren;
  /** The state that the list is filtered by. */
  state?: string | null;
  webhooks: WebhookView[];
}

/** Shows each event once, with all webhooks where it has failed. */
export function FailureRows({ failures, empty, state: filter = null, webhooks }: RowsProps) {
  const resends = useResends();
  const resent = webhooks.flatMap(({ webhookId }) =>
    resends.of(webhookId).map((delivery) => ({ ...delivery, webhookId })),
  );
  // A resent delivery keeps its place, even if the list no longer has it.
  const rows = new Map(
    [...failures, ...resent].map((one) => [`${one.eventId} ${one.webhookId}`, one]),
  );
  if (rows.size === 0) return <>{empty}</>;
  const { state, event, recorded } = t.deliveries;
  const events = Map.groupBy(rows.values(), ({ eventId }) => eventId);
  return (
    <RowsTable columns={[state, event, t.home.webhook, recorded]} fault={resends.fault}>
      {[...events]
        .toSorted(([a], [b]) => (a < b ? 1 : -1))
        .map(([eventId, ofEvent]) => (
          <Row
            key={eventId}
            failures={ofEvent}
            state={filter}
            webhooks={webhooks}
            resends={resends}
          />
        ))}
    </RowsTable>
  );
}

interface RowProps extends RowsProps {
  resends: ReturnType<typeof useResends>;
}

function Row({ failures, state: filter, webhooks, resends }: RowProps) {
  const [first] = failures;
  if (!first) return null;
  const { type, subject, createdAt, eventId } = first;
  const name = t.types[type] ?? type;
  const webhookOf = (id: string) => webhooks.find(({ webhookId }) => webhookId === id);
  const isActive = ({ webhookId }: FailureView) => webhookOf(webhookId)?.state !== "disabled";
  const sendable = failures.filter(isActive);
  const worst = failures.find(({ state }) => state === "exhausted") ?? first;
  const state = filter ? { state: filter } : {};
  return (
    <tr class={failures.length === 1 ? "linked" : undefined}>
      <td class="row-state">
        <DeliveryState delivery={worst} />
      </td>
      <th scope="row">
        <a href={deliveryHref(worst.webhookId, eventId, state)}>{name}</a>
        {subject && <span class="small">{subject}</span>}
      </th>
      <td class="row-answer">
        {failures.length > 1 && <b>{t.failures.webhooks(failures.length)}</b>}
        <ul class="places">
          {failures.map((failure) => {
            const webhook = webhookOf(failure.webhookId);
            const label = webhook ? nameOf(webhook) : failure.webhookId;
            return (
              <li key={failure.webhookId}>
                {failures.length > 1 ? (
                  <a href={deliveryHref(failure.webhookId, eventId, state)}>{label}</a>
                ) : (
                  label
                )}
                <span class="small">
                  {failure.lastAttempt && formatOutcome(failure.lastAttempt)}
                </span>
                <ResendResult resent={resends.find(failure.webhookId, eventId)} />
              </li>
            );
          })}
        </ul>
      </td>
      <td class="row-time">
        <Moment at={createdAt} />
      </td>
      <td class="row-action">
        {!isReadOnly() && sendable.length > 0 && (
          <button
            type="button"
            class="quiet"
            // It stays focused, which a disabled button does not.
            aria-disabled={resends.isBusy}
            aria-label={t.deliveries.sendAgainOf(name, formatMoment(createdAt))}
            onClick={() =>
              resends.send(
                sendable.map((delivery) => ({ webhookId: delivery.webhookId, delivery })),
              )
            }
          >
            {t.deliveries.sendAgain}
          </button>
        )}
      </td>
    </tr>
  );
}
