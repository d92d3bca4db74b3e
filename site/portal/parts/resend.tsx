import { useEffect, useRef, useState } from "preact/hooks";
import type { DeliveryView } from "../../../src/history/views.ts";
import { Fault, readDelivery, redeliver } from "../api.ts";
import { formatOutcome } from "../format.ts";
import { reloadAll, useAction } from "../load.ts";
import { t } from "../text.ts";

/** A delivery, and the webhook that it is for. */
export interface OfWebhook<Delivery extends DeliveryView = DeliveryView> {
  webhookId: string;
  delivery: Delivery;
}

/** A delivery that the reader has resent from this page, and its newest state. */
interface Resent extends OfWebhook {
  /** The number of its attempts before. */
  before: number;
}

/** The pauses between looks at a delivery that was resent; the last one repeats. */
const LOOKS_MS = [500, 1_000, 1_500, 2_000, 3_000, 5_000];

const keyOf = (webhookId: string, eventId: string) => `${webhookId} ${eventId}`;

/**
 * Resends deliveries, and follows each until its attempt has ended. Once resent, a delivery may no longer match the
 * filters of its list, so the list shows `all` of them as well.
 */
export function useResends() {
  const { isBusy, fault, run } = useAction();
  const [resent, setResent] = useState<ReadonlyMap<string, Resent>>(new Map());
  const isShown = useRef(true);
  useEffect(
    () => () => {
      isShown.current = false;
    },
    [],
  );

  const note = (one: Resent) =>
    setResent((all) => new Map(all).set(keyOf(one.webhookId, one.delivery.eventId), one));
  const watch = async (one: Resent) => {
    for (let looks = 0; isShown.current; looks++) {
      await new Promise((resolve) =>
        setTimeout(resolve, LOOKS_MS[Math.min(looks, LOOKS_MS.length - 1)]),
      );
      if (document.visibilityState !== "visible") continue;
      try {
        const delivery = await readDelivery(one.webhookId, one.delivery.eventId);
        note({ ...one, delivery });
        if (delivery.attempts === one.before && delivery.dueAt !== null) continue;
        return reloadAll();
      } catch (error) {
        // The page says so where it loads its data, which it tries again, too.
        if (!(error instanceof Fault)) throw error;
      }
    }
  };
  const send = (deliveries: OfWebhook[]) =>
    run(async () => {
      for (const { webhookId, delivery } of deliveries) {
        await redeliver(webhookId, { eventIds: [delivery.eventId] });
        const one = { webhookId, delivery, before: delivery.attempts };
        note(one);
        void watch(one);
      }
    });
  return {
    isBusy,
    fault,
    send,
    /** Returns what was resent of a webhook, with its newest state. */
    of: (webhookId: string): DeliveryView[] =>
      [...resent.values()].filter((one) => one.webhookId === webhookId).map((one) => one.delivery),
    /** Returns what became of a delivery; null if it was not resent. */
    find: (webhookId: string, eventId: string): Resent | null =>
      resent.get(keyOf(webhookId, eventId)) ?? null,
  };
}

/** Says that a delivery is queued, then how its attempt has ended. */
export function ResendResult({ resent }: { resent: Resent | null }) {
  const last = resent?.delivery.lastAttempt;
  const hasEnded = resent !== null && resent.delivery.attempts > resent.before;
  return (
    <span class="resent" role="status">
      {resent && (hasEnded && last ? t.sendAgain.ended(formatOutcome(last)) : t.sendAgain.queued)}
    </span>
  );
}
