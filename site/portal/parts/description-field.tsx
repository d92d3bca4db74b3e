import { DESCRIPTION_MAX_LENGTH } from "../../../src/contract/limits.ts";
import { t } from "../text.ts";

/** Asks for the description of a webhook; the surrounding form has it as `description`. */
export function DescriptionField({ description = null }: { description?: string | null }) {
  return (
    <label class="field">
      {t.edit.description}
      <input
        name="description"
        maxLength={DESCRIPTION_MAX_LENGTH}
        autocomplete="off"
        defaultValue={description ?? ""}
      />
      <small>{t.edit.descriptionHint}</small>
    </label>
  );
}
