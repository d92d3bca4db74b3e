/**
 * Calls a method of the Platform API and prints its output, as a table in a terminal and otherwise as JSON.
 *
 *     npm run platform -- createWorkspace '{ "name": "Agence Lumière" }'
 *     npm run platform -- createWorkspace --help
 */
import { fail } from "../shared/command.ts";
import { print } from "../shared/terminal.ts";
import { callMethod } from "./call.ts";

process.on("uncaughtException", fail);
const answer = await callMethod(process.argv.slice(2));
if (answer !== null) print(answer);
