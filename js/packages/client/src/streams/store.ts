/**
 * The streams and buckets of a hub: makes them, finds them, and lists them. A node loads this file,
 * with commands and leases, when it is first asked for one of them.
 */
import { InvalidArgument } from "../generated/errors.js";
import type { Node } from "../node.js";
import { checkNames, shown } from "../options.js";
import { randomName, type Shell } from "../platform/shell.js";
import { Bucket, type BucketInfo, type BucketSettings, bucketInfo } from "./bucket.js";
import { Home, microseconds, oneOf } from "./home.js";
import { Stream, type StreamInfo, type StreamSettings, streamInfo } from "./stream.js";

export { Clock } from "./clock.js";
export { Commands } from "./commands.js";
export { Lease } from "./lease.js";

export class Store {
	private readonly home: Home;
	/** Gives a unique name. */
	private readonly unique: () => string;

	constructor(node: Node, shell: Shell) {
		this.home = new Home(node, () => shell.now());
		this.unique = () => randomName(shell);
	}

	async stream<T>(name: string, settings: StreamSettings | undefined): Promise<Stream<T>> {
		if (settings === undefined) {
			await this.home.ask("stream_info", [name]);
			return new Stream<T>(this.home, name, this.unique);
		}
		const sizes = { maxBytes: 0, replicas: 0 };
		checkNames("stream", settings, { subjects: 0, maxAge: 0, maxMessages: 0, full: 0, dedupe: 0, ...sizes });
		const { subjects, maxAge, maxBytes = null, maxMessages = null, full = "refuse" } = settings;
		const { dedupe = 120_000, replicas = 1 } = settings;
		if (!Array.isArray(subjects)) {
			throw new InvalidArgument(`subjects: ${shown(subjects)} is not allowed: give an array of patterns`);
		}
		await this.home.ask("create_stream", [
			name,
			subjects,
			microseconds("maxAge", maxAge),
			maxBytes,
			maxMessages,
			oneOf("full", full, ["refuse", "drop_old"]) === "drop_old",
			microseconds("dedupe", dedupe),
			replicas,
		]);
		return new Stream<T>(this.home, name, this.unique);
	}

	async streams(): Promise<StreamInfo[]> {
		return ((await this.home.ask("list_streams", [])) as unknown[]).map(streamInfo);
	}

	async kv<T>(name: string, settings: BucketSettings | undefined): Promise<Bucket<T>> {
		if (settings === undefined) {
			await this.home.ask("bucket_info", [name]);
		} else {
			checkNames("kv", settings, { history: 0, ttl: 0, maxBytes: 0, replicas: 0 });
			const { history = 1, ttl, maxBytes = null, replicas = 1 } = settings;
			await this.home.ask("create_bucket", [name, history, microseconds("ttl", ttl), maxBytes, replicas]);
		}
		return new Bucket<T>(this.home, name);
	}

	async buckets(): Promise<BucketInfo[]> {
		return ((await this.home.ask("list_buckets", [])) as unknown[]).map(bucketInfo);
	}
}
