/** Formats a count with its noun, such as `1,204 deliveries`, for `locale`. */
export function counter(locale: string) {
  const number = new Intl.NumberFormat(locale);
  const rules = new Intl.PluralRules(locale);
  return (n: number, one: string, other: string) =>
    `${number.format(n)}\u00a0${rules.select(n) === "one" ? one : other}`;
}
