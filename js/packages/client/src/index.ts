/**
 * Tidewire in JavaScript: a node that joins a hub over WebSocket, calls services and serves some, publishes and subscribes.
 *
 * @packageDocumentation
 */
import { open } from "#socket";
import type { ConnectOptions } from "./connecting.js";
import { join, type Node } from "./node.js";
import { shellOf } from "./platform.js";

/**
 * Joins a hub, and leaves it with `await node.close()`, or at the end of an `await using`.
 *
 * @param url Where the hub listens: ws://host:port, or wss://host:port.
 * @throws InvalidArgument if the URL or an option is not allowed; LinkLost if no hub can be reached; Unauthorized, NameTaken or VersionMismatch if it refuses.
 */
export function connect(url: string, options: ConnectOptions = {}): Promise<Node> {
	return join(shellOf(open), url, options);
}

export type {
	Answer,
	AnyService,
	Call,
	Client,
	Items,
	Method,
	UntypedClient,
} from "./client.js";
export type { ConnectOptions } from "./connecting.js";
export { type CallContext, context } from "./context.js";
export type {
	InstanceInfo,
	MethodInfo,
	Schema,
	ServiceInfo,
	Visibility,
} from "./discovery.js";
export { TidewireError } from "./error.js";
export * from "./generated/errors.js";
export type { RemoteFunction, RemoteObject } from "./held.js";
export type { ServiceStatistics } from "./hosting.js";
export type { MethodOptions } from "./methods.js";
export type {
	Node,
	NodeEvents,
	NodeStatistics,
	ServeOptions,
	ServiceHandle,
} from "./node.js";
export {
	type CallOptions,
	Named,
	named,
	type Policy,
	type Priority,
} from "./options.js";
export { Remote, remote } from "./remote.js";
export type { Bucket, BucketInfo, BucketSettings, Entry } from "./streams/bucket.js";
export type { CommandInfo, CommandProgress, CommandRun, Commands, Stage, StartOptions } from "./streams/commands.js";
export type { Consumer, ConsumerInfo, NextOptions } from "./streams/consumer.js";
export type { Content, DeadEvent, Message, PublishOptions, SettleOptions, StreamEvent } from "./streams/event.js";
export type { Start } from "./streams/home.js";
export type { Lease, LeaseOptions } from "./streams/lease.js";
export type { Ack } from "./streams/publisher.js";
export type { Schedule, ScheduleOptions } from "./streams/schedule.js";
export type { ConsumerSettings, ReadOptions, Stream, StreamInfo, StreamSettings } from "./streams/stream.js";
export type {
	Envelope,
	Listener,
	SubscribeOptions,
	Subscription,
} from "./subscriptions.js";
export {
	ByteArray,
	Complex,
	DateTime,
	Decimal,
	Duration,
	FrozenSet,
	LocalDate,
	LocalDateTime,
	LocalTime,
	NdArray,
	record,
	Tuple,
	type TypedArray,
	tuple,
	typeOf,
	UUID,
} from "./values/kinds.js";
