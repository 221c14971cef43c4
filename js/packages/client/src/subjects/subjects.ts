/** Subjects and patterns: their rules, and which subjects a pattern selects. */
import { InvalidArgument, InvalidSubject } from "../generated/errors.js";
import { SUBJECT_BYTES, SUBJECT_TOKENS } from "../generated/limits.js";
import { checkNames } from "../options.js";
import { utf8Length } from "../text.js";
import type { SubscribeOptions } from "./subscriptions.js";

const FORBIDDEN = /[\s\p{Cc}*>]/u;
/** Allowed names of services, instances and methods. */
export const NAME = /^[^\s.*>\p{Cc}]{1,255}$/u;
const REMEMBERED = 1000;

/** The subject of a method of a service, or of one instance of it. */
export function serviceSubject(service: string, method: string, instance?: string): string {
	return instance === undefined ? `svc.${service}.${method}` : `svc.${service}.${instance}.${method}`;
}

/** Subjects that were found to be in order. */
const known = new Set<string>();

/**
 * Says what keeps a text from being a subject, or from being a pattern; undefined if nothing does.
 */
export function subjectProblem(text: unknown, pattern: boolean): string | undefined {
	if (!pattern && known.has(text as string)) {
		return undefined;
	}
	const problem = problemOf(text, pattern);
	if (problem === undefined && !pattern) {
		if (known.size >= REMEMBERED) {
			known.clear();
		}
		known.add(text as string);
	}
	return problem;
}

function problemOf(text: unknown, pattern: boolean): string | undefined {
	const what = pattern ? "pattern" : "subject";
	if (typeof text !== "string") {
		return `${what}: ${typeof text} is not allowed: give text`;
	}
	const shown = `${what} ${JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}...` : text)}`;
	if (utf8Length(text) > SUBJECT_BYTES) {
		return `${shown}: it has more than ${SUBJECT_BYTES} bytes; write a shorter one`;
	}
	const tokens = text.split(".");
	if (tokens.length > SUBJECT_TOKENS) {
		return `${shown}: it has more than ${SUBJECT_TOKENS} tokens; write fewer`;
	}
	for (const [at, token] of tokens.entries()) {
		if (pattern && (token === "*" || (token === ">" && at === tokens.length - 1))) {
			continue;
		}
		if (token === "") {
			return `${shown}: token ${at + 1} is empty; write at least one character between the dots`;
		}
		if (FORBIDDEN.test(token)) {
			return `${shown}: token ${at + 1} holds a blank or a wildcard; write tokens without blanks, \`*\` and \`>\` only as whole tokens of patterns, \`>\` as the last`;
		}
	}
	return undefined;
}

/** Refuses a text that is no subject, or no pattern. */
export function checkSubject(text: unknown, pattern: boolean): asserts text is string {
	const problem = subjectProblem(text, pattern);
	if (problem !== undefined) {
		throw new InvalidSubject(problem);
	}
}

/** Refuses a pattern, an option, or the name of a queue group that is none. */
export function checkSubscription(pattern: unknown, options: SubscribeOptions): asserts pattern is string {
	checkSubject(pattern, true);
	checkNames("subscribe", options, { queue: 0 });
	const { queue = "" } = options;
	if (typeof queue !== "string" || queue.length > 255) {
		throw new InvalidArgument("queue: give text of at most 255 bytes");
	}
}

/** The service by which nodes show their statistics, and take actions of operators. */
export const INSPECTION = "$sys";

/** True if `wide` also selects everything that `narrow` selects. */
export function covers(wide: string, narrow: string): boolean {
	const [one, other] = [wide.split("."), narrow.split(".")];
	for (const [at, token] of one.entries()) {
		if (token === ">") {
			return other.length > at;
		}
		const theirs = other[at];
		if (theirs === undefined || theirs === ">" || (token !== "*" && token !== theirs)) {
			return false;
		}
	}
	return one.length === other.length;
}
