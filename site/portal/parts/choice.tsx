/** Values with their texts. */
export type Options = [value: string, text: string][];

interface ChoiceProps {
  label: string;
  /** The label if nothing is chosen. */
  all: string;
  value: string | null;
  options: Options;
  onChosen(value: string): void;
}

/** Offers values to choose from, or none of them. */
export function Choice({ label, all, value, options, onChosen }: ChoiceProps) {
  return (
    <label class="field">
      {label}
      <select value={value ?? ""} onInput={({ currentTarget }) => onChosen(currentTarget.value)}>
        <option value="">{all}</option>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
