/** Options of `connect`: how a node joins its hub, and the allowed values. */
import { InvalidArgument } from "./generated/errors.js";
import { NAME_BYTES } from "./generated/limits.js";
import { checkNames, shown } from "./options.js";
import { encode } from "./text.js";

/** How a node joins its hub. */
export interface ConnectOptions {
	/** Token of the node, where the hub asks for one. */
	readonly token?: string | undefined;
	/** Its name, unique on the hub; a random one by default. */
	readonly name?: string | undefined;
	/**
	 * How long a hub that is not there yet is looked for, in milliseconds (0); one that refuses is
	 * not asked again.
	 */
	readonly joinTimeout?: number | undefined;
	/** Milliseconds (5,000): after twice this time without a word of the hub the link is lost. */
	readonly heartbeat?: number | undefined;
	/** The longest payload that it takes, in bytes (268,435,456). */
	readonly payloadBytes?: number | undefined;
	/** Ends the attempt to join. */
	readonly signal?: AbortSignal | undefined;
}

/** Refuses a URL and options that are not allowed. */
export function checkConnect(url: string, options: ConnectOptions): void {
	if (/^(nats|tls):/.test(url)) {
		const place = url.replace(/\?.*|(?<=\/\/).*@/g, "");
		throw new InvalidArgument(
			`connect: url: '${place}' is no hub: run \`tidewire up --nats ${place} --listen ws://127.0.0.1:7421\``,
		);
	}
	let scheme: string | undefined;
	try {
		scheme = new URL(url).protocol;
	} catch {
		scheme = undefined;
	}
	if (scheme !== "ws:" && scheme !== "wss:") {
		throw new InvalidArgument(
			`connect: url: ${shown(url)} is not allowed: give the URL of a hub, such as ws://127.0.0.1:7421 or wss://host:443/`,
		);
	}
	checkNames("connect", options, { token: 0, name: 0, joinTimeout: 0, heartbeat: 0, payloadBytes: 0, signal: 0 });
	const { name, token, joinTimeout, heartbeat, payloadBytes } = options;
	if (name !== undefined && (typeof name !== "string" || name.length === 0 || encode(name).length > NAME_BYTES)) {
		throw new InvalidArgument(`connect: name: ${shown(name)} is not allowed: give text of 1 to ${NAME_BYTES} bytes`);
	}
	if (token !== undefined && typeof token !== "string") {
		throw new InvalidArgument("connect: token: it is not text");
	}
	range("joinTimeout", joinTimeout, 0, 86_400_000, "ms");
	range("heartbeat", heartbeat, 50, 3_600_000, "ms");
	range("payloadBytes", payloadBytes, 1024, 4_294_967_296, "bytes");
}

function range(name: string, value: number | undefined, min: number, max: number, unit: string): void {
	if (value !== undefined && !(typeof value === "number" && value >= min && value <= max)) {
		throw new InvalidArgument(`connect: ${name}: ${shown(value)} is not allowed: give ${min} to ${max} ${unit}`);
	}
}
