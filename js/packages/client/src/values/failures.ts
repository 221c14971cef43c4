/** Errors as what travels of them, and back. */

import { TidewireError } from "../error.js";
import { ERRORS } from "../generated/error_table.js";
import { RemoteError, WireError } from "../generated/errors.js";

const TEXT_MAX = 65_536;
const CAUSES_MAX = 8;
const OWN = "tidewire.errors:";
const BUILTINS = "builtins:";

/** The entries of an error's map. Its own properties that can't be sent are left out. */
export function describeError(error: Error, isSendable: (value: unknown) => boolean): [string, unknown][] {
	const state = Object.entries(error).filter(([name, value]) => !HIDDEN.has(name) && isSendable(value));
	return [
		["type", typeName(error)],
		["message", error instanceof RemoteError ? bare(error) : clean(error.message)],
		["args", null],
		["state", new Map(state)],
		["notes", []],
		["traceback", clean(stackOf(error))],
	];
}

const HIDDEN = new Set(["name", "code", "retryable", "remoteTraceback", "message", "stack", "cause", "typeName"]);

function typeName(error: Error): string {
	if (error instanceof RemoteError && error.typeName !== "") {
		return error.typeName;
	}
	return error instanceof TidewireError ? `${OWN}${error.name}` : `javascript:${error.name || "Error"}`;
}

/** The stack of an error, and those of its causes. */
function stackOf({ stack, cause }: Error, depth = 0): string {
	const below = cause instanceof Error && depth < CAUSES_MAX ? `\n[cause]: ${stackOf(cause, depth + 1)}` : "";
	return (stack ?? "") + below;
}

/** The message of the other side, without the name of the call and of its type. */
function bare({ message, typeName }: RemoteError): string {
	const begin = `${typeName}: `;
	const at = message.indexOf(begin);
	return at < 0 ? message : message.slice(at + begin.length);
}

function clean(text: string): string {
	const whole =
		text.length <= TEXT_MAX ? text : `${text.slice(0, TEXT_MAX / 2 - 8)} [...] ${text.slice(8 - TEXT_MAX / 2)}`;
	return whole.replace(/[\ud800-\udfff]/gu, "�");
}

const BY_NAME = new Map([...ERRORS.values()].map((errorClass) => [new errorClass().name, errorClass]));

/** Makes an error of its map: of its own class if Tidewire has it, else a `RemoteError`. */
export function buildError(fields: unknown): TidewireError {
	const [type, message, traceback] = [text(fields, "type"), text(fields, "message"), text(fields, "traceback", "")];
	const known = type.startsWith(OWN) ? BY_NAME.get(type.slice(OWN.length)) : undefined;
	const error = known && known !== RemoteError ? new known(message) : remoteError(type, message);
	error.remoteTraceback = traceback;
	const state: unknown = get(fields, "state");
	for (const name of ["blocked_ms", "path", "known", "problems", "kind"]) {
		const value: unknown = get(state, name);
		const own = name.replace(/_(.)/, (_, letter: string) => letter.toUpperCase());
		if (value !== undefined && own in error) {
			Object.assign(error, { [own]: value });
		}
	}
	return error;
}

function remoteError(type: string, message: string): RemoteError {
	const name = type.startsWith(BUILTINS) ? type.slice(BUILTINS.length) : type;
	const error = new RemoteError(message === "" ? name : `${name}: ${message}`);
	error.typeName = name;
	return error;
}

function text(fields: unknown, name: string, otherwise?: string): string {
	const value = get(fields, name) ?? otherwise;
	if (typeof value !== "string") {
		throw new WireError(`data: an error needs text as its ${name}`);
	}
	return value;
}

/** An entry of a map, however it was read. */
function get(fields: unknown, name: string): unknown {
	if (fields instanceof Map) {
		return fields.get(name);
	}
	return typeof fields === "object" && fields !== null && Object.hasOwn(fields, name)
		? (fields as Record<string, unknown>)[name]
		: undefined;
}
