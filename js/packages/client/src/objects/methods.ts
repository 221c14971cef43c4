/** Methods of an object: its functions by their names. */
import type { Schema, Visibility } from "../discovery/discovery.js";
import { InvalidArgument } from "../generated/errors.js";
import { isPlatformPrototype } from "../platform/prototypes.js";

/** Description of a method for others, and its call options. */
export interface MethodOptions {
	readonly description?: string | undefined;
	/**
	 * JSON Schema of its arguments as an object by their names, or the names alone, in order: then
	 * it can be called by name.
	 */
	readonly parameters?: Schema | readonly string[] | undefined;
	/** JSON Schema of its result; of one item, if it is a stream. */
	readonly result?: Schema | undefined;
	/** True if the result is a stream; generators are streams by themselves. */
	readonly stream?: boolean | undefined;
	/** True if the method may be called again after an unknown outcome. */
	readonly idempotent?: boolean | undefined;
	/** True if the result is messages for a language model: MCP clients get it as a prompt. */
	readonly prompt?: boolean | undefined;
	/** Milliseconds that a call may take where its caller says nothing. */
	readonly timeout?: number | undefined;
	readonly visibility?: Visibility | undefined;
}

/** A method as it is run. */
export interface Bound {
	readonly name: string;
	readonly streams: boolean;
	readonly run: (args: unknown[]) => unknown;
	/** The names of its parameters, where they are known. */
	readonly parameters: readonly string[] | undefined;
}

type AnyFunction = (this: unknown, ...args: unknown[]) => unknown;

const TOKEN = /^[^\s.*>\p{Cc}]+$/u;
/** Methods that JavaScript itself calls. */
const OWN = new Set(["constructor", "toJSON", "toLocaleString", "toString", "valueOf"]);
/** Members of every client besides the methods of its service. */
const RESERVED = new Set(["with", "then", "sync", "with_"]);

export function boundFunction(
	name: string,
	run: AnyFunction,
	options: MethodOptions | undefined,
	self?: unknown,
): Bound {
	const parameters = options?.parameters;
	const names = Array.isArray(parameters)
		? (parameters as readonly string[])
		: Object.keys((parameters as { properties?: object } | undefined)?.properties ?? {});
	return {
		name,
		streams: options?.stream ?? isGenerator(run),
		run: (args) => run.apply(self, args),
		parameters: parameters === undefined ? undefined : names,
	};
}

/**
 * The methods of an object: its own functions, and those of its class and the classes that this one
 * extends, but for classes of the platform. Names that begin with an underscore are not served, nor
 * are the methods that JavaScript itself calls, such as `toString`.
 *
 * @throws InvalidArgument if it is a function, or a name or an option of a method is not allowed.
 */
export function boundMethods(target: object, options: Readonly<Record<string, MethodOptions>>): Map<string, Bound> {
	if (typeof target === "function") {
		throw new InvalidArgument(
			"a function has no methods: give an object of functions, such as { add }, or an instance of a class",
		);
	}
	const found = new Map<string, Bound>();
	for (
		let of: object | null = target;
		of !== null && of !== undefined && !isPlatformPrototype(of);
		of = Object.getPrototypeOf(of) as object | null
	) {
		for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(of))) {
			const run: unknown = property.value;
			if (typeof run !== "function" || OWN.has(name) || name.startsWith("_") || found.has(name)) {
				continue;
			}
			if (!TOKEN.test(name) || RESERVED.has(name)) {
				throw new InvalidArgument(
					`method ${JSON.stringify(name)} is not allowed: give a name without dots, blanks, '*' and '>', other than ${[...RESERVED].join(", ")}`,
				);
			}
			found.set(name, boundFunction(name, run as AnyFunction, options[name], target));
		}
	}
	const unknown = Object.keys(options).find((name) => !found.has(name));
	if (unknown !== undefined) {
		throw new InvalidArgument(
			`methods: ${JSON.stringify(unknown)} is none of its functions: there are ${[...found.keys()].join(", ")}`,
		);
	}
	return found;
}

const GENERATORS = new Set(["GeneratorFunction", "AsyncGeneratorFunction"]);

/** An async generator that TypeScript, Babel, SWC or esbuild has compiled for an older platform. */
const LOWERED = /^[^{]*\{\s*return\s+[(0,\s]*[\w$.]*async_?generator[\w$]*\)?\(/i;

function isGenerator(run: AnyFunction): boolean {
	const tag = (run as { [Symbol.toStringTag]?: string })[Symbol.toStringTag] ?? "";
	return GENERATORS.has(tag) || LOWERED.test(Function.prototype.toString.call(run));
}
