import type { Entry, Part } from "./openapi.ts";

/** A request of an example; the key is in the environment variable `API_KEY`. */
export interface ExampleRequest {
  method: string;
  url: string;
  /** Headers besides `Authorization` and `Content-Type`. */
  headers?: Record<string, string>;
  body?: unknown;
}

/**
 * Whether a parameter stands in the example of a request, and is filled in under "Try it". A filter is not: its example
 * would hide items of the example response. An optional header is not either: each request needs a value of its own.
 */
export function isInExample(parameter: Part): boolean {
  return parameter.in === "path" || parameter.required || "default" in parameter.schema;
}

/** Makes the request of an operation from the example values of the document. */
export function exampleRequest(origin: string, { method, path, operation }: Entry): ExampleRequest {
  const parameters: Part[] = operation.parameters;
  const query = parameters
    .filter((one) => one.in === "query" && isInExample(one))
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
  /** The name by which highlight.ts knows it. */
  highlight: string;
  write(request: ExampleRequest): string;
}

export const LANGUAGES: Language[] = [
  { name: "curl", highlight: "sh", write: toCurl },
  { name: "Windows", highlight: "powershell", write: toPowerShell },
  { name: "TypeScript", highlight: "ts", write: toTypeScript },
  { name: "Python", highlight: "python", write: toPython },
  { name: "PHP", highlight: "php", write: toPhp },
  { name: "Go", highlight: "go", write: toGo },
  { name: "C#", highlight: "csharp", write: toCSharp },
  { name: "Java", highlight: "java", write: toJava },
  { name: "Ruby", highlight: "ruby", write: toRuby },
];

const JSON_TYPE = "application/json";

/** Writes the request as a shell command. */
export function toCurl({ method, url, headers = {}, body }: ExampleRequest): string {
  const given = Object.entries(headers).map(([name, value]) => `  -H '${name}: ${value}'`);
  return [
    `curl "${url}"`,
    ...(method === "GET" ? [] : [`  -X ${method}`]),
    '  -H "Authorization: Bearer $API_KEY"',
    ...given,
    ...(body
      ? [`  -H "Content-Type: ${JSON_TYPE}"`, `  -d '${indented(toJson(body), "  ")}'`]
      : []),
  ].join(" \\\n");
}

/** Writes the request for PowerShell, whose quotes differ from those of other shells. */
function toPowerShell({ method, url, headers = {}, body }: ExampleRequest): string {
  const sent = body ? ` -ContentType "${JSON_TYPE}" -Body $body` : "";
  const given = Object.entries(headers).map(([name, value]) => `; '${name}' = '${value}'`);
  return `${body ? `$body = @'\n${toJson(body)}\n'@\n` : ""}$headers = @{ Authorization = "Bearer $env:API_KEY"${given.join("")} }
Invoke-RestMethod "${url}" -Method ${method} -Headers $headers${sent} |
  ConvertTo-Json -Depth 10`;
}

function toTypeScript({ method, url, headers = {}, body }: ExampleRequest): string {
  const given = Object.entries(typed(headers, body)).map(
    ([name, value]) => `, "${name}": ${JSON.stringify(value)}`,
  );
  return `const response = await fetch(${JSON.stringify(url)}, {
  method: ${JSON.stringify(method)},
  headers: { Authorization: \`Bearer \${process.env.API_KEY}\`${given.join("")} },${
    body ? `\n  body: JSON.stringify(${indented(toJson(body), "  ")}),` : ""
  }
});
if (!response.ok) throw new Error(await response.text());
console.log(await response.text());`;
}

function toPython({ method, url, headers = {}, body }: ExampleRequest): string {
  const key = '"Authorization": f"Bearer {os.environ[\'API_KEY\']}"';
  const given = Object.entries(typed(headers, body)).map(
    ([name, value]) => `        "${name}": ${JSON.stringify(value)},\n`,
  );
  const all = given.length > 0 ? `\n        ${key},\n${given.join("")}    ` : key;
  return `import ${body ? "json, " : ""}os, urllib.request

request = urllib.request.Request(
    ${JSON.stringify(url)},
    method=${JSON.stringify(method)},
    headers={${all}},${
      body
        ? `\n    data=json.dumps(${indented(toPythonValue(toJson(body)), "    ")}).encode(),`
        : ""
    }
)
with urllib.request.urlopen(request) as response:
    print(response.read().decode())`;
}

function toPhp({ method, url, headers = {}, body }: ExampleRequest): string {
  const given = Object.entries(typed(headers, body)).map(
    ([name, value]) => `, '${name}: ${value}'`,
  );
  return `<?php
$context = stream_context_create(['http' => [
    'method' => '${method}',
    'header' => ['Authorization: Bearer ' . getenv('API_KEY')${given.join("")}],${
      body ? `\n    'content' => '${indented(escaped(toJson(body)), "    ")}',` : ""
    }
]]);
$body = file_get_contents('${url}', false, $context);
if ($body === false) exit(1);
echo $body;`;
}

function toGo({ method, url, headers = {}, body }: ExampleRequest): string {
  const content = body ? `strings.NewReader(\`${indented(toJson(body), "\t")}\`)` : "nil";
  const given = Object.entries(typed(headers, body)).map(
    ([name, value]) => `\n\trequest.Header.Set("${name}", ${JSON.stringify(value)})`,
  );
  return `package main

import (
	"fmt"
	"io"
	"net/http"
	"os"${body ? '\n\t"strings"' : ""}
)

func main() {
	request, err := http.NewRequest("${method}", "${url}", ${content})
	if err != nil {
		panic(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))${given.join("")}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 400 {
		panic(string(text))
	}
	fmt.Println(string(text))
}`;
}

function toCSharp({ method, url, headers = {}, body }: ExampleRequest): string {
  const name = method.slice(0, 1) + method.slice(1).toLowerCase();
  const given = Object.entries(headers).map(
    ([name, value]) => `\nrequest.Headers.Add("${name}", ${JSON.stringify(value)});`,
  );
  const content = body
    ? `\nrequest.Content = new StringContent("""\n    ${indented(toJson(body), "    ")}\n    """, System.Text.Encoding.UTF8, "${JSON_TYPE}");`
    : "";
  return `using var client = new HttpClient();
using var request = new HttpRequestMessage(HttpMethod.${name}, "${url}");
request.Headers.Authorization = new("Bearer", Environment.GetEnvironmentVariable("API_KEY"));${given.join("")}${content}
using var response = await client.SendAsync(request);
var text = await response.Content.ReadAsStringAsync();
if (!response.IsSuccessStatusCode) throw new HttpRequestException(text);
Console.WriteLine(text);`;
}

function toJava({ method, url, headers = {}, body }: ExampleRequest): string {
  const indent = "                ";
  const publisher = body
    ? `BodyPublishers.ofString("""\n${indent}    ${indented(escaped(toJson(body)), `${indent}    `)}""")`
    : "BodyPublishers.noBody()";
  const given = Object.entries(typed(headers, body)).map(
    ([name, value]) => `\n${indent}.header("${name}", ${JSON.stringify(value)})`,
  );
  return `import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

class Example {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create("${url}"))
${indent}.header("Authorization", "Bearer " + System.getenv("API_KEY"))${given.join("")}
${indent}.method("${method}", ${publisher})
${indent}.build();
        var response = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        if (response.statusCode() >= 400) throw new RuntimeException(response.body());
        System.out.println(response.body());
    }
}`;
}

function toRuby({ method, url, headers = {}, body }: ExampleRequest): string {
  const name = method.slice(0, 1) + method.slice(1).toLowerCase();
  const given = Object.entries(typed(headers, body)).map(
    ([name, value]) => `\nrequest["${name}"] = "${value}"`,
  );
  const content = body ? `\nrequest.body = '${escaped(toJson(body))}'` : "";
  return `require "net/http"

uri = URI("${url}")
request = Net::HTTP::${name}.new(uri)
request["Authorization"] = "Bearer #{ENV.fetch("API_KEY")}"${given.join("")}${content}
response = Net::HTTP.start(uri.host, uri.port, use_ssl: uri.scheme == "https") do |http|
  http.request(request)
end
abort response.body unless response.is_a?(Net::HTTPSuccess)
puts response.body`;
}

/** Adds the type of the body to the headers. */
function typed(headers: Record<string, string>, body: unknown): Record<string, string> {
  return body ? { ...headers, "Content-Type": JSON_TYPE } : headers;
}

/**
 * Writes a value as JSON, on several lines if it is long. It has no quote that would end a string of the languages, so
 * that it can stand in one as it is where a backslash has no meaning, and elsewhere once it is escaped.
 */
function toJson(value: unknown): string {
  const line = JSON.stringify(value);
  const json = line.length < 60 ? line : JSON.stringify(value, null, 2);
  return json.replaceAll("'", "\\u0027").replaceAll("`", "\\u0060");
}

/** Escapes backslashes, for languages in whose strings they have a meaning. */
function escaped(json: string): string {
  return json.replaceAll("\\", "\\\\");
}

/** Converts JSON to Python, which writes three values differently. */
function toPythonValue(json: string): string {
  const names: Record<string, string> = { null: "None", true: "True", false: "False" };
  return json.replace(/"(?:[^"\\]|\\.)*"|\w+/g, (part) => names[part] ?? part);
}

function indented(text: string, by: string): string {
  return text.replaceAll("\n", `\n${by}`);
}
