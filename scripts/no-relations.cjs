/**
 * Stands in for two parts of Drizzle, in the Worker alone (wrangler.toml, [alias]): its relational
 * queries, of which the Worker makes none, and the enumerations of Postgres, which its SQL asks after.
 */
exports.isPgEnum = () => false;
