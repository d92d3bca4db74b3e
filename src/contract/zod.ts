import * as z from "zod/mini";
import en from "zod/v4/locales/en.js";

/*
 * zod in its small form, whose unused parts are left out of the bundle. It comes without texts: its
 * messages are those of the large form, in English.
 */
z.config(en());

export * from "zod/mini";
