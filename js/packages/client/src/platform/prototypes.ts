/** Prototypes of the classes of the platform, whose methods are not the program's. */

const NATIVE = /\{\s*\[native code\]\s*\}\s*$/;
/** Modules of Node whose classes extend `EventEmitter`. */
const EMITTERS = "child_process cluster dgram events fs http http2 https net readline stream tls worker_threads zlib";

interface Process {
	getBuiltinModule?(name: string): Readonly<Record<string, unknown>> | undefined;
}

/**
 * True if an object is the prototype of a class of the platform: of the language, also of another
 * realm, of the browser, or of a module of Node.
 */
export function isPlatformPrototype(value: object): boolean {
	const ctor: unknown = Object.getOwnPropertyDescriptor(value, "constructor")?.value;
	if (typeof ctor !== "function" || ctor.prototype !== value) {
		return false;
	}
	const { name } = ctor;
	// The global functions of a program are enumerable, and those of the platform are not.
	const isGlobal = !Object.prototype.propertyIsEnumerable.call(globalThis, name);
	return (
		NATIVE.test(Function.prototype.toString.call(ctor)) ||
		(isGlobal && (globalThis as Record<string, unknown>)[name] === ctor) ||
		isOfNode(value, name, ctor)
	);
}

function isOfNode(value: object, name: string, ctor: unknown): boolean {
	const { process } = globalThis as { process?: Process };
	if (process === undefined) {
		return false;
	}
	// `process` is an EventEmitter, also where modules can't be asked for.
	const emitter = Object.getPrototypeOf(Object.getPrototypeOf(process)) as object | null;
	const isEmitter = emitter !== null && Object.prototype.isPrototypeOf.call(emitter, value);
	const modules = isEmitter ? EMITTERS.split(" ") : ["async_hooks"];
	return value === emitter || modules.some((module) => process.getBuiltinModule?.(module)?.[name] === ctor);
}
