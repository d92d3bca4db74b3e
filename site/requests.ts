import type { Entry, Part } from "./openapi.ts";

/** A request of an example; the key is in the environment variable `API_KEY`. */
export interface ExampleRequest {
  method: string;
  url: string;
  body?: unknown;
}

/**
 * Whether a parameter stands in the example of a request, and is filled in under "Try it". A filter is not: its example
 * would hide items of the example response. It is the only kind of query parameter without a default.
 */
export function isInExample(parameter: Part): boolean {
  return parameter.in !== "query" || parameter.required || "default" in parameter.schema;
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
  /** The name by which html.ts highlights it. */
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

/** Writes the request as a shell command. */
export function toCurl({ method, url, body }: ExampleRequest): string {
  return [
    `curl "${url}"`,
    ...(method === "GET" ? [] : [`  -X ${method}`]),
    '  -H "Authorization: Bearer $API_KEY"',
    ...(body ? ['  -H "Content-Type: application/json"', `  -d '${shellJson(body)}'`] : []),
  ].join(" \\\n");
}

/** Writes the request for PowerShell, whose quotes differ from those of other shells. */
function toPowerShell({ method, url, body }: ExampleRequest): string {
  const sent = body ? ` -ContentType "application/json" -Body $body` : "";
  return `${body ? `$body = @'\n${toJson(body)}\n'@\n` : ""}$headers = @{ Authorization = "Bearer $env:API_KEY" }
Invoke-RestMethod "${url}" -Method ${method} -Headers $headers${sent} |
  ConvertTo-Json -Depth 10`;
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

function toGo({ method, url, body }: ExampleRequest): string {
  const content = body ? `strings.NewReader(\`${indented(toJson(body), "\t")}\`)` : "nil";
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
	request.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))${
    body ? '\n\trequest.Header.Set("Content-Type", "application/json")' : ""
  }
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

function toCSharp({ method, url, body }: ExampleRequest): string {
  const name = method.slice(0, 1) + method.slice(1).toLowerCase();
  const content = body
    ? `\nrequest.Content = new StringContent("""\n    ${indented(toJson(body), "    ")}\n    """, System.Text.Encoding.UTF8, "application/json");`
    : "";
  return `using var client = new HttpClient();
using var request = new HttpRequestMessage(HttpMethod.${name}, "${url}");
request.Headers.Authorization = new("Bearer", Environment.GetEnvironmentVariable("API_KEY"));${content}
using var response = await client.SendAsync(request);
var text = await response.Content.ReadAsStringAsync();
if (!response.IsSuccessStatusCode) throw new HttpRequestException(text);
Console.WriteLine(text);`;
}

function toJava({ method, url, body }: ExampleRequest): string {
  const indent = "                ";
  const publisher = body
    ? `BodyPublishers.ofString("""\n${indent}    ${indented(toJson(body), `${indent}    `)}""")`
    : "BodyPublishers.noBody()";
  const type = body ? `\n${indent}.header("Content-Type", "application/json")` : "";
  return `import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

class Example {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create("${url}"))
${indent}.header("Authorization", "Bearer " + System.getenv("API_KEY"))${type}
${indent}.method("${method}", ${publisher})
${indent}.build();
        var response = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        if (response.statusCode() >= 400) throw new RuntimeException(response.body());
        System.out.println(response.body());
    }
}`;
}

function toRuby({ method, url, body }: ExampleRequest): string {
  const name = method.slice(0, 1) + method.slice(1).toLowerCase();
  const content = body
    ? `\nrequest["Content-Type"] = "application/json"\nrequest.body = '${toJson(body)}'`
    : "";
  return `require "net/http"

uri = URI("${url}")
request = Net::HTTP::${name}.new(uri)
request["Authorization"] = "Bearer #{ENV.fetch("API_KEY")}"${content}
response = Net::HTTP.start(uri.host, uri.port, use_ssl: uri.scheme == "https") do |http|
  http.request(request)
end
abort response.body unless response.is_a?(Net::HTTPSuccess)
puts response.body`;
}

/** Writes JSON, on several lines if it is long. */
function shellJson(value: unknown): string {
  return indented(toJson(value), "  ");
}

/**
 * Writes a value as JSON. With the values of the requests, it is also valid in TypeScript and Python, and in a
 * string of the other languages.
 */
function toJson(value: unknown): string {
  const line = JSON.stringify(value);
  return line.length < 60 ? line : JSON.stringify(value, null, 2);
}

function indented(text: string, by: string): string {
  return text.replaceAll("\n", `\n${by}`);
}
