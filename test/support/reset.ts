import { resetStorage } from "./placement.ts";

await resetStorage();
