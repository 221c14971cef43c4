/**
 * `connect` alone, also as the entry `tidewire/connect`: for pages whose bundler keeps all that an
 * entry names, such as esbuild, and that count bytes.
 */
import type { ConnectOptions } from "./connect_options.js";
import { Node } from "./node.js";
import { shellOf } from "./platform/platform.js";
import { open } from "./platform/socket.js";

/**
 * Joins a hub, and leaves it with `await node.close()`, or at the end of an `await using`.
 *
 * @param url Where the hub listens: ws://host:port, or wss://host:port.
 * @throws InvalidArgument if the URL or an option is not allowed; LinkLost if no hub can be
 * reached; Unauthorized, NameTaken or VersionMismatch if it refuses.
 */
export function connect(url: string, options: ConnectOptions = {}): Promise<Node> {
	return Node.join(shellOf(open), url, options);
}

export type { ConnectOptions, Node };
