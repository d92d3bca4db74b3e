import type { OpenedSession } from "../../../src/contract/portal-token.ts";
import { exchangeLink } from "../api.ts";
import { useLoad } from "../load.ts";
import { acceptOffer, arrive, dismissArrival, type Refusal } from "../session.ts";
import { t } from "../text.ts";
import { Dialog } from "./dialog.tsx";
import { LoadState } from "./faults.tsx";

interface Props {
  /** The token of the link that was followed. */
  link: string;
  /** Whether the page shows something else in the meantime. */
  isHidden?: boolean;
}

/** Opens the session of a link, trying again until the server accepts or rejects it. */
export function Arrival({ link, isHidden = false }: Props) {
  const loaded = useLoad(async () => arrive(link, await exchangeLink(link)), `link ${link}`);
  return isHidden ? null : <LoadState loaded={loaded} />;
}

/** Asks whether to leave the workspace that is open for the one of the link that was followed. */
export function OfferDialog({ offer, current }: { offer: OpenedSession; current: string }) {
  const { name } = offer.workspace;
  return (
    <Dialog title={t.arrival.title(name)} onClose={dismissArrival}>
      {(close) => (
        <>
          <p>{t.arrival.text(name, current)}</p>
          <div class="buttons">
            <button type="button" onClick={close}>
              {t.arrival.stay(current)}
            </button>
            <button type="button" class="primary" onClick={acceptOffer}>
              {t.arrival.accept(name)}
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}

/** Says why the link that was followed opens nothing, while another session stays open. */
export function RefusalDialog({ refusal, current }: { refusal: Refusal; current: string }) {
  const { title, text } = t.arrival[refusal];
  return (
    <Dialog title={title} onClose={dismissArrival}>
      {(close) => (
        <>
          <p>{text}</p>
          <p>{t.arrival.still(current)}</p>
          <div class="buttons">
            <button type="button" class="primary" onClick={close}>
              {t.close}
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}
