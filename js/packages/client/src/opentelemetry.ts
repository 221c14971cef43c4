/**
 * Spans of OpenTelemetry, as the entry `tidewire/opentelemetry`. A program that does not import it
 * loads nothing of it.
 */
import type { Plan } from "./calls/calls.js";
import type { OutgoingCall } from "./calls/interceptors.js";
import type { Node } from "./node.js";
import { headerFields } from "./options.js";
import { type CallContext, handledCall } from "./services/context.js";
import { isThenable, type QueuedCall } from "./services/service_instance.js";
import type { Message, PublishOptions } from "./streams/event.js";
import type { Envelope, Listener } from "./subjects/subscriptions.js";

type Headers = Readonly<Record<string, string>>;

/** A span of OpenTelemetry. */
export interface Span {
	setAttribute(name: string, value: string): unknown;
	setStatus(status: { code: number; message?: string }): unknown;
	recordException(error: Error): void;
	spanContext(): object;
	end(): void;
}

/** The exports of `@opentelemetry/api`, as far as spans need them. */
export interface OpenTelemetry {
	readonly ROOT_CONTEXT: object;
	readonly context: {
		active(): object;
		with<T>(context: object, run: () => T): T;
		bind<T>(context: object, run: T): T;
	};
	readonly propagation: {
		inject(context: object, headers: object): void;
		extract(context: object, headers: object): object;
	};
	readonly trace: {
		getTracer(name: string): { startSpan(name: string, options?: object, context?: object): Span };
		getSpan(context: object): Span | undefined;
		setSpan(context: object, span: Span): object;
	};
}

const [SERVER, CLIENT, PRODUCER, CONSUMER] = [1, 2, 3, 4];
const ERROR = 2;

/**
 * Has a node make spans of its calls, its messages, and the handlers of both. Once for a node, and
 * first of all:
 *
 * ```ts
 * import * as opentelemetry from "@opentelemetry/api";
 * import { instrument } from "tidewire/opentelemetry";
 *
 * instrument(node, opentelemetry);
 * ```
 *
 * @param api The exports of `@opentelemetry/api`.
 */
export function instrument(node: Node, { ROOT_CONTEXT, context, propagation, trace }: OpenTelemetry): void {
	const tracer = trace.getTracer("tidewire");

	const named = (at: object): Headers => {
		const headers: Record<string, string> = {};
		propagation.inject(at, headers);
		return headers;
	};

	/** The current context; where it has no span, that of `headers`, or of the handled call. */
	const parentOf = (headers: Headers | undefined): object => {
		const active = context.active();
		return trace.getSpan(active) === undefined
			? propagation.extract(active, { ...handledCall.getStore()?.context?.headers, ...headers })
			: active;
	};

	/** The headers of a message, with the span of its producer. */
	const produced = (subject: string, headers: Headers | undefined): Headers => {
		const parent = parentOf(headers);
		const attributes = messaging(subject, "publish", "send");
		const span = tracer.startSpan(`publish ${subject}`, { kind: PRODUCER, attributes }, parent);
		span.end();
		return { ...headers, ...named(trace.setSpan(parent, span)) };
	};

	/** Runs a handler within a span whose parent its headers name. */
	const handled = (name: string, kind: number, attributes: object, headers: Headers, run: () => unknown): unknown => {
		const parent = propagation.extract(ROOT_CONTEXT, headers);
		const sender = kind === CONSUMER ? trace.getSpan(parent) : undefined;
		const links = sender === undefined ? [] : [{ context: sender.spanContext() }];
		const span = tracer.startSpan(name, { kind, attributes, links }, parent);
		const within = <T>(step: () => T): T => context.with(trace.setSpan(parent, span), step);
		return ended(span, () => within(run), within);
	};

	const { site } = node.clients;
	// A call of a function that was passed has no span here, and carries the current one.
	let { nested } = site;
	Object.defineProperty(site, "nested", {
		set: (value: typeof nested) => {
			nested = value;
		},
		get: () => (): ((plan: Plan) => Plan) => {
			const [part, current] = [nested(), headerFields(named(context.active()))];
			return (plan) => part({ ...plan, fields: [...new Map([...current, ...plan.fields])] });
		},
	});
	site.bind = (run) => context.bind(context.active(), run);
	node.use(async (call: OutgoingCall, next) => {
		// The calls of streams, commands and leases are those of the client itself.
		if (call.service.startsWith("tidewire-")) {
			return next(call);
		}
		const { options, isStream } = call;
		const parent = parentOf(options.headers);
		const title = `${call.service}/${call.method}`;
		const span = tracer.startSpan(title, { kind: CLIENT, attributes: rpc(title) }, parent);
		const at = trace.setSpan(parent, span);
		const traced = { ...call, options: { ...options, headers: { ...options.headers, ...named(at) } } };
		const send = async (): Promise<unknown> => {
			const result = await context.with(at, () => next(traced));
			return isStream ? ended(span, () => result) : result;
		};
		return isStream ? send() : ended(span, send);
	});

	node.runtime.around = (call: CallContext, { title, run }: QueuedCall): unknown => {
		const name = title.replace(".", "/");
		return handled(name, SERVER, rpc(name), call.headers, run);
	};

	override(node, "publish", (publish) => (subject, value, options) => {
		return publish(subject, value, { ...options, headers: produced(subject, options?.headers) });
	});
	override(node, "request", (request) => (subject, value, options) => {
		return request(subject, value, { ...options, headers: { ...named(context.active()), ...options?.headers } });
	});
	override(node, "subscribe", (subscribe) => (pattern, listener, options) => {
		const within: Listener = (value: unknown, envelope: Envelope) => {
			// A request has the span of its server.
			const { subject, headers } = envelope;
			return handledCall.getStore() === undefined
				? handled(`process ${subject}`, CONSUMER, messaging(subject, "process", "process"), headers, () =>
						listener(value, envelope),
					)
				: listener(value, envelope);
		};
		return subscribe(pattern, typeof listener === "function" ? within : listener, options);
	});
	override(node, "stream", (open) => async (name, settings) => {
		const stream = await open(name, settings);
		override(stream, "publish", (publish) => (subject, value, options?: PublishOptions) => {
			return publish(subject, value as never, { ...options, headers: produced(subject, options?.headers) });
		});
		override(stream, "batch", (batch) => (messages) => {
			const sent = (one: Message): Message => ({ ...one, headers: produced(one.subject, one.headers) });
			return batch(messages.map(sent));
		});
		return stream as never;
	});
}

/** Replaces a method of an object. */
function override<O extends object, K extends keyof O>(target: O, name: K, make: (own: O[K]) => O[K]): void {
	target[name] = make((target[name] as (...args: never[]) => unknown).bind(target) as O[K]);
}

/** Runs something, and ends its span with its result: a value, a promise, or items. */
function ended(span: Span, run: () => unknown, within = <T>(step: () => T): T => step()): unknown {
	const failed = (error: unknown): never => {
		const thrown = error instanceof Error ? error : new Error(String(error));
		span.recordException(thrown);
		span.setAttribute("error.type", thrown.name);
		span.setStatus({ code: ERROR, message: `${thrown.name}: ${thrown.message}` });
		span.end();
		throw error;
	};
	let result: unknown;
	try {
		result = run();
	} catch (error) {
		return failed(error);
	}
	if (isThenable(result)) {
		return result.then((value) => {
			span.end();
			return value;
		}, failed);
	}
	const items = result as Partial<AsyncIterable<unknown> & Iterator<unknown>> | null;
	if (typeof items?.next === "function") {
		return itemsOf(items as AnyIterator, span, failed, within);
	}
	span.end();
	return result;
}

type AnyIterator = AsyncIterator<unknown> | Iterator<unknown>;

/** The items of an iterator, whose span ends with them, or when their reader leaves. */
async function* itemsOf(
	items: AnyIterator,
	span: Span,
	failed: (error: unknown) => never,
	within: <T>(step: () => T) => T,
): AsyncGenerator<unknown> {
	let isOver = false;
	try {
		for (;;) {
			const { done, value } = await within(() => items.next());
			if (done) {
				isOver = true;
				break;
			}
			yield value;
		}
	} catch (error) {
		isOver = true;
		failed(error);
	} finally {
		if (!isOver) {
			await within(() => items.return?.());
		}
		span.end();
	}
}

function rpc(title: string): object {
	return { "rpc.system.name": "tidewire", "rpc.method": title };
}

function messaging(subject: string, name: string, type: string): object {
	return {
		"messaging.system": "tidewire",
		"messaging.destination.name": subject,
		"messaging.operation.name": name,
		"messaging.operation.type": type,
	};
}
