import { expect, test } from "vitest";
import { agentFamily } from "../../../src/http/agent.ts";

test.each([
  ["curl/8.5.0", "curl"],
  ["Wget/1.24", "wget"],
  ["python-requests/2.32", "python"],
  ["aiohttp/3.9", "python"],
  ["node", "javascript"],
  ["axios/1.7", "javascript"],
  ["gotham/1", "other"],
  ["GuzzleHttp/7", "php"],
  ["Go-http-client/2.0", "go"],
  ["okhttp/4.12", "java"],
  ["Faraday v2.9", "ruby"],
  ["PostmanRuntime/7.39", "api tool"],
  ["Mozilla/5.0 (compatible; Zapier)", "zapier"],
  ["Make/production", "make"],
  ["axon n8n", "n8n"],
  ["Mozilla/5.0 (X11; Linux x86_64)", "browser"],
  ["my curl", "other"],
  ["", "none"],
  [undefined, "none"],
])("The client family of the User-Agent %j is %s", (userAgent, family) => {
  expect(agentFamily(userAgent)).toBe(family);
});
