/**
 * Tidewire in JavaScript: a node that joins a hub over WebSocket, calls services and serves some,
 * publishes and subscribes.
 *
 * @packageDocumentation
 */

export type {
	Answer,
	AnyService,
	Call,
	Client,
	Command,
	Items,
	Method,
	UntypedClient,
} from "./calls/client.js";
export type { Interceptor, OutgoingCall } from "./calls/interceptors.js";
export { connect } from "./connect.js";
export type { ConnectOptions } from "./connect_options.js";
export type {
	InstanceInfo,
	MethodInfo,
	Schema,
	ServiceInfo,
	Visibility,
} from "./discovery/discovery.js";
export type { InstanceChange } from "./discovery/service_watch.js";
export { TidewireError } from "./error.js";
export * from "./generated/errors.js";
export type { Reader } from "./iterators/page_reader.js";
export type { WaitOptions } from "./iterators/waiters.js";
export type { Node } from "./node.js";
export type { NodeEvents, NodeStatistics } from "./node_events.js";
export type { RemoteFunction, RemoteObject } from "./objects/import_table.js";
export type { MethodOptions } from "./objects/methods.js";
export { Remote, remote } from "./objects/remote.js";
export {
	type CallOptions,
	Named,
	named,
	type Policy,
	type Priority,
} from "./options.js";
export { type CallContext, context } from "./services/context.js";
export type { Servable, ServeOptions, ServiceHandle } from "./services/served_instance.js";
export type { ServiceStatistics } from "./services/service_instance.js";
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
} from "./subjects/subscriptions.js";
export { NdArray, type TypedArray } from "./values/arrays.js";
export { ByteArray, FrozenSet, record, Tuple, tuple, typeOf } from "./values/kinds.js";
export { Complex, Decimal, UUID } from "./values/numbers.js";
export { DateTime, Duration, LocalDate, LocalDateTime, LocalTime } from "./values/times.js";
