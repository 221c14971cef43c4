/** The clients of JavaScript: each joins what its hub is, and gives a link that can echo. */
import WebSocket from "ws";

const TIMEOUT_MS = 50_000;

export const CONTENDERS = {
	tidewire: async (url) => {
		const { connect } = await import("tidewire");
		const echo = (await connect(url)).client("echo").with({ timeout: TIMEOUT_MS });
		return { echo: (data) => echo.echo(data) };
	},
	chromium: async (url) => (await import("./page.mjs")).pageOf("tidewire", url, TIMEOUT_MS),
	"ws-chromium": async (url) => (await import("./page.mjs")).pageOf("ws", url, TIMEOUT_MS),
	nats: async (url) => {
		// It speaks WebSocket alone, and Node 20 has none of its own.
		globalThis.WebSocket = WebSocket;
		const { connect } = await import("nats.ws");
		const client = await connect({ servers: url });
		return { echo: async (data) => (await client.request("echo", data, { timeout: TIMEOUT_MS })).data };
	},
	ws: async (url) => {
		const socket = new WebSocket(`${url}/caller`, { perMessageDeflate: false });
		socket.binaryType = "nodebuffer";
		await new Promise((resolve, reject) => socket.on("open", resolve).on("error", reject));
		const waiting = new Map();
		let number = 0;
		socket.on("message", (frame) => {
			const at = frame.readUInt32LE(0);
			waiting.get(at)(frame.subarray(4));
			waiting.delete(at);
		});
		const echo = (data) =>
			new Promise((resolve) => {
				number++;
				waiting.set(number, resolve);
				const frame = Buffer.allocUnsafe(4 + data.length);
				frame.writeUInt32LE(number, 0);
				frame.set(data, 4);
				socket.send(frame);
			});
		return { echo };
	},
};
