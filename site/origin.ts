/** Stands for the address of the API; the Worker puts its own in its place (src/doors/http/docs.ts). */
export const ORIGIN = "https://origin.invalid";
