/**
 * Stands in for the part of zod that turns schemas into JSON Schema, in the Worker alone (wrangler.toml,
 * [alias]): each schema refers to it, and nothing that the Worker does asks for it.
 */
const never = () => () => {
  throw new Error("the Worker has no JSON Schema: see wrangler.toml, [alias]");
};
exports.createToJSONSchemaMethod = never;
exports.createStandardJSONSchemaMethod = never;
