/**
 * A hub of JavaScript: `node relays.mjs ws` passes frames of `ws` on between one service and one
 * caller.
 *
 * Prints one line of JSON once others can come, and ends with its standard input.
 */
import { createServer } from "node:http";

const RELAYS = {
	ws: async (server) => {
		const { WebSocketServer } = await import("ws");
		const joined = {};
		new WebSocketServer({ server, perMessageDeflate: false, maxPayload: 2 ** 26 }).on("connection", (socket, request) => {
			const [own, other] = request.url === "/service" ? ["service", "caller"] : ["caller", "service"];
			joined[own] = socket;
			socket.on("message", (frame) => joined[other].send(frame));
		});
		return "ws";
	},
};

const server = createServer();
const scheme = await RELAYS[process.argv[2]](server);
server.listen(0, "127.0.0.1", () => {
	console.log(JSON.stringify({ url: `${scheme}://127.0.0.1:${server.address().port}`, pid: process.pid }));
});
process.stdin.on("end", () => process.exit(0)).resume();
