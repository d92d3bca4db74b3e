/** Stands for the API's address; the Worker replaces it with its own (src/http/docs.ts). */
export const ORIGIN = "https://origin.invalid";
