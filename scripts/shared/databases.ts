import type { Unstable_Config } from "wrangler";
import { isDatabaseName } from "../../src/contract/database-names.ts";

/** A database of the configuration. */
export interface ConfiguredDatabase {
  binding: string;
  name: string;
  /** Whether it is named by its id, too: then it was made elsewhere. */
  hasId: boolean;
}

/**
 * Tells which databases a configuration binds for the service. Other bindings of D1 are its owner's.
 *
 * @throws Error when it binds none as `DB`, or one without a name.
 */
export function databasesIn({
  d1_databases,
}: Pick<Unstable_Config, "d1_databases">): ConfiguredDatabase[] {
  const databases = d1_databases
    .filter(({ binding }) => isDatabaseName(binding))
    .map(({ binding, database_name: name, database_id }) => {
      if (!name) throw new Error(`wrangler.toml gives ${binding} no database_name`);
      return { binding, name, hasId: Boolean(database_id) };
    });
  if (!databases.some(({ binding }) => binding === "DB"))
    throw new Error("wrangler.toml binds no database as DB");
  return databases;
}

/** Reads a configuration of wrangler. */
export async function readConfig(config: string): Promise<Unstable_Config> {
  // Large: what ends before does without it.
  const { unstable_readConfig } = await import("wrangler");
  return unstable_readConfig({ config }, { hideWarnings: true });
}
