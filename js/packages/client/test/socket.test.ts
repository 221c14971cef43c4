/** Servers that are no hub, and break the rules of WebSocket. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import test from "node:test";
import { connect } from "tidewire";

test("a server that is no hub: the error names its URL and the cause", async () => {
	const answers: [frame: number[] | undefined, cause: RegExp][] = [
		[undefined, /could not be reached: Unexpected server response: 404/],
		[[0x81, 1, 0x61], /was closed \(.*, a message of the hub is not binary\)/],
		[[0x82, 127, 0, 0, 0, 0, 0x40, 0, 0, 0], /was closed \(.*, Max payload size exceeded\)/],
		[[0xc2, 1, 0], /was closed \(.*RSV1 must be clear\)/],
		[[0x88, 2, 0x03, 0xf0], /was closed \(1008\)/],
	];
	for (const [frame, cause] of answers) {
		const server = createServer((_, response) => response.writeHead(404).end());
		if (frame !== undefined) {
			server.on("upgrade", ({ headers }, socket) => {
				const key = `${headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
				const accept = createHash("sha1").update(key).digest("base64");
				socket.write(
					`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
						`Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: tidewire.v1\r\n\r\n`,
				);
				socket.on("data", () => socket.end()).on("error", () => {});
				socket.write(Buffer.from(frame));
			});
		}
		await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
		const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
		await assert.rejects(connect(url), ({ message }) => cause.test(message) && message.includes(url));
		server.close();
	}
});
