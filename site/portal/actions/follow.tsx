import { updateWebhook } from "../api.ts";
import { reloadAll } from "../load.ts";
import { DialogButton } from "../parts/dialog.tsx";
import { FormDialog } from "../parts/dialog-form.tsx";
import { t } from "../text.ts";

interface Props {
  webhookId: string;
  /** The URL that the server redirects to. */
  to: string;
  class?: string;
}

/** Offers to send to the URL of a redirect from now on. */
export function FollowButton({ webhookId, to, class: look = "quiet" }: Props) {
  const follow = async () => {
    await updateWebhook(webhookId, { url: to });
    reloadAll();
    return t.follow.result;
  };
  return (
    <DialogButton label={t.follow.button} class={look}>
      {(onClose) => (
        <FormDialog texts={t.follow} act={follow} onClose={onClose}>
          <p>{t.follow.text}</p>
          <p class="mono">{to}</p>
          <p>{t.follow.hint}</p>
        </FormDialog>
      )}
    </DialogButton>
  );
}
