/**
 * Calls a method of the Platform door of the running local server and prints its answer as JSON:
 *
 *     npm run platform -- createWorkspace '{ "name": "Agence Lumière" }'
 */
import { z } from "zod";
import { PLATFORM_INPUTS, type PlatformMethod, readInput } from "../src/contract/platform.ts";
import { openPlatformDoor } from "./platform-door.ts";

const USAGE = `npm run platform -- METHOD 'JSON'

Methods of the running local server, and what each takes:
`;

const [method = "--help", json = "{}", ...rest] = process.argv.slice(2);
try {
  if (method === "--help" || method === "-h") console.log(help());
  else if (rest.length > 0)
    throw new Error("one method and one JSON text, in quotes, are expected");
  else console.log(JSON.stringify(await call(method, json), null, 2));
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}

async function call(name: string, text: string): Promise<unknown> {
  if (!isMethod(name))
    throw new Error(`${name}: no such method; npm run platform -- --help lists them`);
  const input = parse(text);
  // The server would say the same, later.
  readInput(name, input);
  await using door = await openPlatformDoor();
  return await door.call(name, input);
}

function isMethod(name: string): name is PlatformMethod {
  return Object.hasOwn(PLATFORM_INPUTS, name);
}

// biome-ignore lint/suspicious/noExplicitAny: whatever it holds, the schema of the method judges it
function parse(text: string): any {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the input is not JSON: ${(error as Error).message}`);
  }
}

function help(): string {
  const methods = Object.entries(PLATFORM_INPUTS).map(([name, schema]) => {
    const shape = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
    return `  ${name} ${outline(shape, shape.$defs ?? {})}`;
  });
  return USAGE + methods.join("\n");
}

type JsonSchema = z.core.JSONSchema.BaseSchema;

/** A schema in one line: `{ workspaceId, requestsPerWindow? }`. */
function outline(schema: JsonSchema, named: Record<string, JsonSchema>): string {
  if (schema.$ref) return outline(named[schema.$ref.replace("#/$defs/", "")] ?? {}, named);
  if (schema.enum) return schema.enum.join("|");
  if (schema.anyOf) return outline(schema.anyOf.find(({ type }) => type !== "null") ?? {}, named);
  if (schema.type === "array") return `[${outline(schema.items as JsonSchema, named)}]`;
  if (!schema.properties) return schema.type === "object" ? "{}" : "";
  const fields = Object.entries(schema.properties).map(([name, field]) => {
    const inside = outline(field as JsonSchema, named);
    return `${name}${schema.required?.includes(name) ? "" : "?"}${inside && `: ${inside}`}`;
  });
  return `{ ${fields.join(", ")} }`;
}
