/** Instance of a service that this node serves, and its description for others. */
import { METHOD, type Visibility } from "../discovery/discovery.js";
import { InvalidArgument } from "../generated/errors.js";
import type { Bound, MethodOptions } from "../objects/methods.js";
import { checkNames, shown } from "../options.js";
import { asyncDispose } from "../symbols.js";
import { encode } from "../text.js";
import type { Id } from "../wire/frames.js";
import type { HandlerLimits, HostLimits, ServiceStatistics } from "./service_instance.js";

/**
 * A target of `node.serve`: an object with a function, or an instance of a class. If TypeScript
 * does not know the members of an object, the client finds out at run time.
 */
// biome-ignore lint/complexity/noBannedTypes: any function or class.
export type Servable<T extends object, F = Function> = T extends F
	? never
	: keyof T extends never
		? T
		: { [K in keyof T]: Extract<T[K], F> extends never ? (F extends T[K] ? T : never) : T }[keyof T];

/** Options of `node.serve`. */
export interface ServeOptions extends HostLimits {
	readonly description?: string | undefined;
	/** "private" (nodes that joined the hub) or "public" (also those who come over HTTP). */
	readonly visibility?: Visibility | undefined;
	/** The id of this instance; a random one by default. */
	readonly instance?: string | undefined;
	/** The semantic version of this instance, such as "1.4.2". */
	readonly version?: string | undefined;
	/** Further metadata of this instance for others: texts by name, 4,096 bytes in all. */
	readonly metadata?: Readonly<Record<string, string>> | undefined;
	/** Descriptions of single methods for others. */
	readonly methods?: Readonly<Record<string, MethodOptions>> | undefined;
}

/** An instance of a service that this node serves. */
export interface ServiceHandle {
	readonly name: string;
	readonly instance: string;
	statistics(): ServiceStatistics;
	/** Takes no more calls, ends its streams, and waits for the calls that came. */
	stop(): Promise<void>;
	[Symbol.asyncDispose](): Promise<void>;
}

const LIMIT_NAMES = { concurrency: 0, waiting: 0, streams: 0 };
const TEXT_NAMES = { description: 0, visibility: 0, instance: 0, version: 0, metadata: 0, methods: 0 };
const LIMIT_MAX = 10_000;
/** A longer description is sent without its schemas. */
const SAID_BYTES_MAX = 60_000;

export class Serving implements ServiceHandle {
	/** Its exchanges with the hub. */
	readonly ids: Id[] = [];
	/** True if the hub has known of the service: a new link announces it again. */
	isKnown = false;

	constructor(
		readonly name: string,
		readonly instance: string,
		readonly methods: ReadonlyMap<string, Bound>,
		/** Those that may be called over HTTP. */
		readonly open: ReadonlyMap<string, Bound>,
		readonly info: string,
		readonly limits: HandlerLimits,
		private readonly ends: () => void,
	) {}

	/** True if a call for an exchange is for this instance. */
	has({ slot, generation }: Id): boolean {
		return this.ids.some((id) => id.slot === slot && id.generation === generation);
	}

	statistics(): ServiceStatistics {
		return this.limits.statistics();
	}

	async stop(): Promise<void> {
		this.ends();
		await this.limits.drain();
	}

	async [asyncDispose](): Promise<void> {
		await this.stop();
	}
}

/** Refuses options that do not exist, and limits that are none. */
export function checkServeOptions(options: ServeOptions): void {
	checkNames("serve", options, { ...TEXT_NAMES, ...LIMIT_NAMES });
	for (const [name, method] of Object.entries(options.methods ?? {})) {
		checkNames(`serve: methods: ${name}`, method, { ...METHOD, prompt: 0 });
	}
	const { concurrency, waiting, streams } = options;
	for (const [name, value] of Object.entries({ concurrency, waiting, streams })) {
		if (value !== undefined && !(Number.isInteger(value) && value >= 1 && value <= LIMIT_MAX)) {
			throw new InvalidArgument(`serve: ${name}: ${shown(value)} is not allowed: give 1 to ${LIMIT_MAX}`);
		}
	}
}

/** The methods that may be called over HTTP. */
export function openOf(methods: ReadonlyMap<string, Bound>, options: ServeOptions): ReadonlyMap<string, Bound> {
	return new Map([...methods].filter(([, bound]) => visibilityOf(bound, options) === "public"));
}

/** A method is as visible as its service, or less. */
function visibilityOf({ name }: Bound, options: ServeOptions): Visibility {
	return options.methods?.[name]?.visibility === "private" ? "private" : (options.visibility ?? "private");
}

/** Description of an instance, as JSON. */
export function infoOf(
	name: string,
	instance: string,
	methods: ReadonlyMap<string, Bound>,
	options: ServeOptions,
): string {
	const { visibility = "private" } = options;
	if (visibility !== "private" && visibility !== "public") {
		throw new InvalidArgument(`serve: visibility: ${shown(visibility)} is not allowed: use 'private' or 'public'`);
	}
	const whole = (withSchemas: boolean): string =>
		JSON.stringify({
			name,
			description: options.description ?? "",
			visibility,
			methods: [...methods.values()].map((bound) =>
				method(bound, options.methods?.[bound.name] ?? {}, visibilityOf(bound, options), withSchemas),
			),
			events: [],
			instances: [instance],
			// The hub looks at both, and says what is wrong with them.
			details: [{ id: instance, version: options.version ?? "", metadata: options.metadata ?? {} }],
		});
	const text = whole(true);
	return encode(text).length <= SAID_BYTES_MAX ? text : whole(false);
}

/** Readers complete the keys that are left out. */
function method(bound: Bound, options: MethodOptions, visibility: string, withSchemas: boolean): object {
	return {
		name: bound.name,
		description: options.description,
		parameters: withSchemas ? schemaOf(bound, options) : undefined,
		result: withSchemas ? options.result : undefined,
		stream: bound.streams || undefined,
		idempotent: options.idempotent,
		prompt: options.prompt,
		timeout: options.timeout && options.timeout / 1000,
		visibility,
	};
}

function schemaOf(bound: Bound, options: MethodOptions): unknown {
	if (options.parameters !== undefined && !Array.isArray(options.parameters)) {
		return options.parameters;
	}
	const properties = Object.fromEntries((bound.parameters ?? []).map((name) => [name, {}]));
	return bound.parameters === undefined ? {} : { type: "object", properties, additionalProperties: false };
}
