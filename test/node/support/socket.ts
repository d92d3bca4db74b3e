import { connect, type Socket } from "node:net";

/** Opens a connection, which collects what it receives. That the server closes it is no error. */
export function openSocket(port: number, host = "127.0.0.1"): Socket & { answer: string } {
  const socket = Object.assign(connect(port, host), { answer: "" });
  socket.on("data", (chunk) => {
    socket.answer += chunk;
  });
  socket.on("error", () => {});
  return socket;
}
