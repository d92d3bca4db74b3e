const NAME = /^DB(_[2-9]|_[1-9]\d+)?$/;

/** Whether a binding of this name is one of our databases: `DB`, `DB_2`, `DB_3`, and so on. */
export function isDatabaseName(name: string): boolean {
  return NAME.test(name);
}
