import type { Entry, Part } from "./openapi.ts";

/** A request as the examples show it; the key is in the environment variable `API_KEY`. */
export interface ExampleRequest {
  method: string;
  url: string;
  body?: unknown;
}

/** An operation's request, with the example values of the document. */
export function exampleRequest(origin: string, { method, path, operation }: Entry): ExampleRequest {
  const parameters: Part[] = operation.parameters;
  const query = parameters
    .filter((one) => one.in === "query" && one.example !== undefined)
    .map((one) => `${one.name}=${one.example}`);
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    String(parameters.find((one) => one.name === name)?.example),
  );
  return {
    method,
    url: origin + filled + (query.length ? `?${query.join("&")}` : ""),
    body: operation.requestBody?.content["application/json"].example,
  };
}

/** A language that the examples are shown in. Each program prints the response, if it has a body. */
export interface Language {
  name: string;
  /** How html.ts highlights it. */
  highlight: string;
  write(request: ExampleRequest): string;
}

export const LANGUAGES: Language[] = [
  { name: "curl", highlight: "sh", write: toCurl },
  { name: "TypeScript", highlight: "ts", write: toTypeScript },
  { name: "Python", highlight: "python", write: toPython },
  { name: "PHP", highlight: "php", write: toPhp },
];

/** The request as a shell command. */
export function toCurl({ method, url, body }: ExampleRequest): string {
  return [
    `curl "${url}"`,
    ...(method === "GET" ? [] : [`  -X ${method}`]),
    '  -H "Authorization: Bearer $API_KEY"',
    ...(body ? ['  -H "Content-Type: application/json"', `  -d '${shellJson(body)}'`] : []),
  ].join(" \\\n");
}

function toTypeScript({ method, url, body }: ExampleRequest): string {
  const type = body ? ', "Content-Type": "application/json"' : "";
  return `const response = await fetch(${JSON.stringify(url)}, {
  method: ${JSON.stringify(method)},
  headers: { Authorization: \`Bearer \${process.env.API_KEY}\`${type} },${
    body ? `\n  body: JSON.stringify(${indented(toJson(body), "  ")}),` : ""
  }
});
if (!response.ok) throw new Error(await response.text());
console.log(await response.text());`;
}

function toPython({ method, url, body }: ExampleRequest): string {
  const type = body ? ',\n        "Content-Type": "application/json",\n    ' : "";
  const key = '"Authorization": f"Bearer {os.environ[\'API_KEY\']}"';
  return `import ${body ? "json, " : ""}os, urllib.request

request = urllib.request.Request(
    ${JSON.stringify(url)},
    method=${JSON.stringify(method)},
    headers={${body ? `\n        ${key}` : key}${type}},${
      body ? `\n    data=json.dumps(${indented(toJson(body), "    ")}).encode(),` : ""
    }
)
with urllib.request.urlopen(request) as response:
    print(response.read().decode())`;
}

function toPhp({ method, url, body }: ExampleRequest): string {
  const type = body ? `, 'Content-Type: application/json'` : "";
  return `<?php
$context = stream_context_create(['http' => [
    'method' => '${method}',
    'header' => ['Authorization: Bearer ' . getenv('API_KEY')${type}],${
      body ? `\n    'content' => '${indented(toJson(body), "    ")}',` : ""
    }
]]);
$body = file_get_contents('${url}', false, $context);
if ($body === false) exit(1);
echo $body;`;
}

/** JSON, broken into lines if it would be long. */
function shellJson(value: unknown): string {
  return indented(toJson(value), "  ");
}

/**
 * A value as JSON, which, for what the requests contain, is valid in TypeScript and Python, too, and in a
 * string of PHP.
 */
function toJson(value: unknown): string {
  const line = JSON.stringify(value);
  return line.length < 60 ? line : JSON.stringify(value, null, 2);
}

function indented(text: string, by: string): string {
  return text.replaceAll("\n", `\n${by}`);
}
