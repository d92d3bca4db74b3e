import type { FailureView, WebhookView } from "../../../src/history/views.ts";
import { listFailures, listWebhooks } from "../api.ts";
import { formatOutcome } from "../format.ts";
import { useLoad } from "../load.ts";
import { DeliveryState, Empty, Moment } from "../parts/basics.tsx";
import { Choice } from "../parts/choice.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { Pages } from "../parts/pages.tsx";
import { deliveryHref, failuresHref, goTo } from "../route.ts";
import { t } from "../text.ts";
import { nameOf } from "../webhook.ts";

const STATES = ["retrying", "exhausted"] as const;

/** The deliveries of all webhooks that are failing, or have failed for good, or one of both; newest first. */
export function Failures({ query }: { query: URLSearchParams }) {
  const loaded = useLoad(() => listFailures(query), `failures ${query}`);
  const [state, cursor] = [query.get("state"), query.get("cursor")];
  const webhooks = useLoad(listWebhooks, "webhooks").data ?? [];
  const failures = loaded.data?.items;
  return (
    <>
      <Heading title={t.failures.title}>{t.failures.title}</Heading>
      <p class="lead">{t.failures.lead}</p>
      <div class="filters shown single">
        <Choice
          label={t.deliveries.state}
          all={t.deliveries.all}
          value={state}
          options={STATES.map((name) => [name, t.deliveryStates[name]])}
          onChosen={(chosen) => goTo(failuresHref({ state: chosen }))}
        />
      </div>
      <LoadState loaded={loaded} />
      {failures?.length === 0 && <Empty title={t.failures.empty} text={t.failures.emptyText} />}
      {failures && failures.length > 0 && (
        <table class="rows webhooks">
          <thead>
            <tr>
              <th scope="col">{t.deliveries.state}</th>
              <th scope="col">{t.deliveries.event}</th>
              <th scope="col">{t.home.webhook}</th>
              <th scope="col">{t.deliveries.recorded}</th>
              <th scope="col">{t.deliveries.lastAnswer}</th>
            </tr>
          </thead>
          <tbody>
            {failures.map((failure) => (
              <Row
                key={`${failure.webhookId} ${failure.eventId}`}
                failure={failure}
                webhook={webhooks.find(({ webhookId }) => webhookId === failure.webhookId)}
              />
            ))}
          </tbody>
        </table>
      )}
      {loaded.data && (
        <Pages
          label={t.failures.pages}
          cursor={cursor}
          next={loaded.data.nextCursor}
          href={(next) => failuresHref({ state, cursor: next })}
        />
      )}
    </>
  );
}

interface RowProps {
  failure: FailureView;
  /** Undefined until the webhooks are loaded. */
  webhook: WebhookView | undefined;
}

function Row({ failure, webhook }: RowProps) {
  const { webhookId, eventId, type, subject, createdAt, lastAttempt, state } = failure;
  return (
    <tr class="linked">
      <td class="row-state">
        <DeliveryState delivery={failure} />
      </td>
      <th scope="row">
        <a href={deliveryHref(webhookId, eventId, { state })}>{t.types[type] ?? type}</a>
        {subject && <span class="small">{subject}</span>}
      </th>
      <td>{webhook && nameOf(webhook)}</td>
      <td class="row-time">
        <Moment at={createdAt} />
      </td>
      <td class="row-answer">{lastAttempt && formatOutcome(lastAttempt)}</td>
    </tr>
  );
}
