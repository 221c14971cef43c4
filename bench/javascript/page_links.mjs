/** What a page echoes through: our client, and the browser's own WebSocket with a relay, which is the least that a page can do. */

export const LINKS = {
	tidewire: async (url, timeout) => {
		const { connect } = await import("/client/tidewire.min.js");
		const echo = (await connect(url)).client("echo").with({ timeout });
		return { echo: (data) => echo.echo(data) };
	},
	ws: async (url) => {
		const socket = new WebSocket(`${url}/caller`);
		socket.binaryType = "arraybuffer";
		await new Promise((resolve, reject) => {
			socket.onopen = resolve;
			socket.onerror = () => reject(new Error(`${url} could not be reached`));
		});
		const waiting = new Map();
		let number = 0;
		socket.onmessage = ({ data }) => {
			const at = new DataView(data).getUint32(0, true);
			waiting.get(at)(new Uint8Array(data, 4));
			waiting.delete(at);
		};
		const echo = (data) =>
			new Promise((resolve) => {
				number++;
				waiting.set(number, resolve);
				const frame = new Uint8Array(4 + data.length);
				new DataView(frame.buffer).setUint32(0, number, true);
				frame.set(data, 4);
				socket.send(frame);
			});
		return { echo };
	},
};
