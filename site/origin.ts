/** Stands for the base URL of the API; the Worker replaces it with its own (src/http/docs.ts). */
export const ORIGIN = "https://origin.invalid";
