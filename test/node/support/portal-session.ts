/**
 * Exchanges a portal link for a session, as the page does.
 *
 * @param link a link from `createPortalLink`, on the server that is to exchange it.
 * @returns the session's token.
 */
export async function openPortalSession(link: URL): Promise<string> {
  const answer = await fetch(new URL("/portal/api/session", link), {
    method: "POST",
    headers: { Authorization: `Bearer ${link.hash.slice(1)}` },
  });
  if (!answer.ok) throw new Error(`the link was answered ${answer.status}`);
  return ((await answer.json()) as { token: string }).token;
}
