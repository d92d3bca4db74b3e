import type {
  DeliveryDetails,
  WorkspaceDetails as Workspace,
} from "../../../src/webhooks/views.ts";
import { readDelivery, redeliver } from "../api.ts";
import { formatExactTime } from "../format.ts";
import { useAction, useLoad } from "../load.ts";
import { announce } from "../parts/announce.tsx";
import { Attempts } from "../parts/attempts.tsx";
import { Badge, Facts } from "../parts/basics.tsx";
import { Body } from "../parts/body.tsx";
import { ActionFault, LoadState } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { webhookHref } from "../route.ts";
import { t } from "../text.ts";

/** One delivery with its attempts and its body. */
export function Delivery(props: { workspace: Workspace; id: string; eventId: string }) {
  const { workspace, id, eventId } = props;
  const loaded = useLoad(() => readDelivery(id, eventId));
  const { isBusy, fault, run } = useAction();
  const delivery = loaded.data;
  const sendAgain = () =>
    run(async () => {
      const { count } = await redeliver(id, { eventIds: [eventId] });
      announce(count > 0 ? t.sendAgain.one : t.sendAgain.none);
      loaded.reload();
    });
  return (
    <>
      <p class="crumb">
        <a href={webhookHref(id)}>← {t.delivery.back}</a>
      </p>
      {delivery === null ? (
        <>
          <Heading>{loaded.fault ? t.deliveries.title : t.loading}</Heading>
          <LoadState loaded={loaded} />
        </>
      ) : (
        <>
          <div class="head">
            <Heading>{t.kinds[delivery.type] ?? delivery.type}</Heading>
            <Badge tone={delivery.state}>{t.deliveryStates[delivery.state]}</Badge>
          </div>
          <LoadState loaded={loaded} />
          <About delivery={delivery} />
          <ActionFault fault={fault} />
          {delivery.state === "test" ? (
            <p class="hint">{t.test.once}</p>
          ) : (
            <div class="buttons">
              <button type="button" disabled={isBusy} onClick={sendAgain}>
                {delivery.state === "pending" ? t.deliveries.sendNow : t.deliveries.sendAgain}
              </button>
            </div>
          )}
          <Attempts webhookId={id} log={delivery.attemptLog} />
          <section>
            <h2>{t.delivery.body}</h2>
            <Body body={delivery.body} />
            <p class="hint">{t.delivery.kept(workspace.retentionDays)}</p>
          </section>
        </>
      )}
    </>
  );
}

function About({ delivery }: { delivery: DeliveryDetails }) {
  const { dueAt, settledAt, createdAt, attempts, eventId } = delivery;
  const facts: [string, string][] = [
    [t.delivery.id, eventId],
    [t.delivery.recorded, formatExactTime(createdAt)],
    [t.deliveries.attempts, String(attempts)],
  ];
  if (settledAt) facts.push([t.delivery.settled, formatExactTime(settledAt)]);
  if (dueAt)
    facts.push([
      t.subscription.nextAttempt,
      Date.parse(dueAt) > Date.now() ? formatExactTime(dueAt) : t.subscription.asap,
    ]);
  return <Facts of={facts} />;
}
