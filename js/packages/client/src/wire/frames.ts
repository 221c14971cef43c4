/** The frames of `spec/wire.md`: reading, checking and writing them. */
import { LINK_FIELDS, LINK_HEAD_BYTES } from "../generated/limits.js";
import { subjectProblem } from "../subjects/subjects.js";
import { decode, encode, encodeInto } from "../text.js";
import { type Rule, WireFault } from "./wire_fault.js";

export const VERSION = 1;
/** Bytes of a frame before its head. */
export const FIXED = 16;

export const enum Kind {
	HELLO = 1,
	WELCOME = 2,
	ERROR = 3,
	GOODBYE = 4,
	PING = 5,
	PONG = 6,
	NODE = 7,
	SUBSCRIBE = 8,
	UNSUBSCRIBE = 9,
	OK = 10,
	PUBLISH = 11,
	CALL = 12,
	REPLY = 13,
	FAIL = 14,
	CANCEL = 15,
	ITEM = 16,
	END = 17,
	CREDIT = 18,
	WINDOW = 19,
	CHUNK = 20,
	ALIVE = 21,
	TAKEN = 22,
}

export const enum Flag {
	LANE = 3,
	MORE = 4,
	ANSWER = 8,
	COMPRESSED = 16,
	AGAIN = 32,
	PLACED = 64,
}
/** The lanes: 0 urgent, 1 high, 2 normal, 3 low. */
export const NORMAL = 2;

/** An exchange: its slot, and the generation of that slot. */
export interface Id {
	readonly slot: number;
	readonly generation: number;
}

/** Of several fields with one name the first counts. */
export type Fields = ReadonlyArray<readonly [name: string, value: Uint8Array]>;

const NOTHING = new Uint8Array(0);
const MAGIC = "tidewire";
const PLACE_BYTES = 32;
const CARRIES = bits(Kind.PUBLISH, Kind.CALL, Kind.REPLY, Kind.FAIL, Kind.ITEM);
const MAY_BE_PLACED = bits(Kind.CALL, Kind.REPLY, Kind.ITEM);
const OF_ANSWER = bits(Kind.OK, Kind.REPLY, Kind.FAIL, Kind.ALIVE);
const NOT_OF_ANSWER = bits(Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.PUBLISH, Kind.CALL, Kind.CANCEL);
const WITH_PAYLOAD = bits(Kind.HELLO, Kind.WELCOME, Kind.ERROR, Kind.NODE, Kind.SUBSCRIBE, Kind.CHUNK) | CARRIES;
/** The kinds by their numbers, for errors. */
export const NAMES =
	" HELLO WELCOME ERROR GOODBYE PING PONG NODE SUBSCRIBE UNSUBSCRIBE OK PUBLISH CALL REPLY FAIL CANCEL ITEM END CREDIT WINDOW CHUNK ALIVE TAKEN".split(
		" ",
	);

function bits(...kinds: number[]): number {
	return kinds.reduce((all, kind) => all | (1 << kind), 0);
}

/** A frame where it lies in what was read. */
export class Frame implements Id {
	constructor(
		readonly view: DataView,
		readonly bytes: Uint8Array,
		readonly at: number,
		readonly headEnd: number,
		readonly end: number,
	) {}

	get kind(): Kind {
		return this.bytes[this.at + 4] as Kind;
	}
	get flags(): number {
		return this.bytes[this.at + 5] as number;
	}
	get slot(): number {
		return this.view.getUint32(this.at + 8, true);
	}
	get generation(): number {
		return this.view.getUint32(this.at + 12, true);
	}
	get headAt(): number {
		return this.at + FIXED;
	}
	get payload(): Uint8Array {
		return this.bytes.subarray(this.headEnd, this.end);
	}
	get lane(): number {
		return this.flags & Flag.LANE;
	}
	get answer(): boolean {
		return (this.flags & Flag.ANSWER) !== 0;
	}
	/** True if the payload follows in chunks, and the frame itself has only its length. */
	get stated(): boolean {
		return (this.flags & Flag.MORE) !== 0 && this.kind !== Kind.CHUNK;
	}
	/** The bytes of a payload that follows in chunks. */
	get total(): number {
		const [low, high] = [this.view.getUint32(this.headEnd, true), this.view.getUint32(this.headEnd + 4, true)];
		return high * 2 ** 32 + low;
	}
}

/** Reads the frames of one message, which holds whole frames. */
export function* readFrames(message: Uint8Array, frameBytesMax: number): Generator<Frame> {
	const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
	let at = 0;
	while (at < message.length) {
		const frame = readFrame(message, view, at, frameBytesMax);
		yield frame;
		at = frame.end;
	}
}

function readFrame(bytes: Uint8Array, view: DataView, at: number, max: number): Frame {
	if (bytes.length - at < 4) {
		throw fault("frame_short", "a message ends within the length of a frame");
	}
	const length = view.getUint32(at, true);
	if (length > max) {
		throw fault("frame_long", `a frame of ${length} bytes is longer than link_frame_bytes=${max}`);
	}
	if (length < FIXED - 4 || at + FIXED > bytes.length) {
		throw fault("frame_short", `a frame of ${length} bytes is too short`);
	}
	const kind = bytes[at + 4] as number;
	const flags = bytes[at + 5] as number;
	const head = view.getUint16(at + 6, true);
	if (kind < 1 || kind > Kind.TAKEN) {
		throw fault("kind", `there is no kind ${kind}`);
	}
	if (flags & 0x80) {
		throw fault("flags", `${NAMES[kind]}: bit 7 of its flags must be 0`);
	}
	if (head > LINK_HEAD_BYTES) {
		throw fault("link_head_bytes", `${NAMES[kind]}: its head of ${head} bytes is longer than link_head_bytes`);
	}
	if (FIXED - 4 + head > length || at + 4 + length > bytes.length) {
		throw fault("frame_short", `${NAMES[kind]}: its head is longer than the frame, or the frame than its message`);
	}
	return new Frame(view, bytes, at, at + FIXED + head, at + 4 + length);
}

function fault(rule: Rule, text: string): WireFault {
	return new WireFault(rule, text);
}

/** Values of the head of a frame, and of its fields where the payload has some. */
export interface Head {
	oldest?: number;
	newest?: number;
	version?: number;
	number?: number;
	queue?: string;
	pattern?: string;
	origin?: number;
	to?: Id;
	deadlineMs?: number;
	choice?: number;
	credit?: number;
	subject?: string;
	items?: number;
	bytes?: number;
	blockedMs?: number;
	fields?: Fields;
}

/** Reads the head of a frame, and checks everything that the two ends of a link may check. */
export function readHead(frame: Frame): Head {
	const { kind, flags } = frame;
	const bit = 1 << kind;
	if ((OF_ANSWER & bit && !frame.answer) || (NOT_OF_ANSWER & bit && frame.answer)) {
		throw fault("value", `${NAMES[kind]}: ANSWER is not as this kind needs it`);
	}
	const cursor = new Cursor(frame, frame.headAt, frame.headEnd);
	const head = readParts(kind, cursor);
	cursor.expectEnd();
	if (!(WITH_PAYLOAD & bit) && frame.end > frame.headEnd) {
		throw fault("long", `${NAMES[kind]}: it has a payload`);
	}
	if (kind === Kind.HELLO || kind === Kind.WELCOME || kind === Kind.NODE || kind === Kind.SUBSCRIBE) {
		const payload = new Cursor(frame, frame.headEnd, frame.end);
		head.fields = payload.fields();
		payload.expectEnd();
	}
	if (CARRIES & bit && flags & Flag.MORE) {
		checkStated(frame);
	}
	return head;
}

function readParts(kind: Kind, cursor: Cursor): Head {
	switch (kind) {
		case Kind.HELLO: {
			cursor.magic();
			const [oldest, newest] = [cursor.u16(), cursor.u16()];
			if (oldest < 1 || oldest > newest) {
				throw fault("value", `HELLO: versions ${oldest} to ${newest} are no range from 1 on`);
			}
			return { oldest, newest };
		}
		case Kind.WELCOME: {
			const version = cursor.u16();
			if (version < 1) {
				throw fault("value", "WELCOME: there is no version 0");
			}
			return { version };
		}
		case Kind.ERROR:
		case Kind.FAIL:
			return { number: cursor.u16() };
		case Kind.NODE:
			return { number: cursor.u32() };
		case Kind.SUBSCRIBE: {
			const queue = cursor.text(cursor.u8());
			return { queue, pattern: cursor.subject(cursor.remaining, true) };
		}
		case Kind.PUBLISH: {
			const [origin, to] = [cursor.u32(), cursor.id()];
			return {
				origin,
				to,
				subject: cursor.subject(cursor.u16(), false),
				fields: cursor.fields(),
			};
		}
		case Kind.CALL: {
			const [origin, to, deadlineMs, choice, credit] = [
				cursor.u32(),
				cursor.id(),
				cursor.u32(),
				cursor.u8(),
				cursor.u32(),
			];
			const subject = cursor.subject(cursor.u16(), false);
			if (choice > 3) {
				throw fault("value", `CALL: there is no choice ${choice}`);
			}
			return {
				origin,
				to,
				deadlineMs,
				choice,
				credit,
				subject,
				fields: cursor.fields(),
			};
		}
		case Kind.CREDIT:
			return { items: cursor.u32() };
		case Kind.WINDOW:
			return { bytes: cursor.u32() };
		case Kind.ALIVE:
			return { blockedMs: cursor.u32() };
		default:
			return {};
	}
}

function checkStated(frame: Frame): void {
	const placed = MAY_BE_PLACED & (1 << frame.kind) && frame.flags & Flag.PLACED;
	if (placed && frame.flags & Flag.COMPRESSED) {
		throw fault("value", `${NAMES[frame.kind]}: it is placed and compressed`);
	}
	const size = placed ? 8 + PLACE_BYTES : 8;
	const length = frame.end - frame.headEnd;
	if (length !== size) {
		throw fault(length < size ? "short" : "long", `${NAMES[frame.kind]}: MORE needs a payload of ${size} bytes`);
	}
}

/** Reads the parts of a head from left to right. */
class Cursor {
	constructor(
		private readonly frame: Frame,
		private at: number,
		private readonly end: number,
	) {}

	get remaining(): number {
		return this.end - this.at;
	}

	expectEnd(): void {
		if (this.at < this.end) {
			throw fault("long", `${this.kind}: ${this.remaining} bytes follow what belongs there`);
		}
	}

	u8(): number {
		return this.frame.view.getUint8(this.take(1));
	}

	u16(): number {
		return this.frame.view.getUint16(this.take(2), true);
	}

	u32(): number {
		return this.frame.view.getUint32(this.take(4), true);
	}

	id(): Id {
		return { slot: this.u32(), generation: this.u32() };
	}

	magic(): void {
		if (this.remaining < MAGIC.length || this.text(MAGIC.length) !== MAGIC) {
			throw fault("not_tidewire", "HELLO: it is not of this protocol");
		}
	}

	text(length: number): string {
		const at = this.take(length);
		const text = decode(this.frame.bytes, at, at + length);
		if (text === undefined) {
			throw fault("utf8", `${this.kind}: a text is not UTF-8`);
		}
		return text;
	}

	subject(length: number, pattern: boolean): string {
		// The longest allowed subject is known before its text is read.
		const text = this.text(length);
		const problem = subjectProblem(text, pattern);
		if (problem !== undefined) {
			throw fault("subject", `${this.kind}: ${problem}`);
		}
		return text;
	}

	fields(): Fields {
		const fields: [string, Uint8Array][] = [];
		if (this.remaining === 0) {
			return fields;
		}
		const count = this.u8();
		if (count > LINK_FIELDS) {
			throw fault("link_fields", `${this.kind}: ${count} fields are more than link_fields=${LINK_FIELDS}`);
		}
		for (let n = 0; n < count; n++) {
			const name = this.text(this.u8());
			const length = this.u16();
			const at = this.take(length);
			fields.push([name, this.frame.bytes.subarray(at, at + length)]);
		}
		return fields;
	}

	private get kind(): string {
		return NAMES[this.frame.kind] as string;
	}

	private take(bytes: number): number {
		const at = this.at;
		if (at + bytes > this.end) {
			throw fault("short", `${this.kind}: it ends too soon`);
		}
		this.at = at + bytes;
		return at;
	}
}

/** The text of the first field of a name. */
export function fieldText(fields: Fields, name: string): string | undefined {
	const found = fields.find((field) => field[0] === name);
	return found && decode(found[1], 0, found[1].length);
}

/** The number of the first field of a name. */
export function fieldNumber(fields: Fields, name: string, otherwise: number): number {
	const text = fieldText(fields, name);
	return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : otherwise;
}

/** Bytes that are written to from left to right. */
export class Head8 {
	bytes: Uint8Array;
	view: DataView;
	at = 0;

	constructor(capacity = 256) {
		this.bytes = new Uint8Array(capacity);
		this.view = new DataView(this.bytes.buffer);
	}

	u8(value: number): this {
		const at = this.reserve(1);
		this.view.setUint8(at, value);
		return this;
	}

	u16(value: number): this {
		const at = this.reserve(2);
		this.view.setUint16(at, value, true);
		return this;
	}

	u32(value: number): this {
		const at = this.reserve(4);
		this.view.setUint32(at, value, true);
		return this;
	}

	id(id: Id): this {
		return this.u32(id.slot).u32(id.generation);
	}

	raw(bytes: Uint8Array): this {
		const at = this.reserve(bytes.length);
		this.bytes.set(bytes, at);
		return this;
	}

	/** Text behind its length in 16 bits. */
	text16(text: string): this {
		const at = this.reserve(2 + text.length * 3);
		const length = encodeInto(text, this.bytes, at + 2);
		this.view.setUint16(at, length, true);
		this.at = at + 2 + length;
		return this;
	}

	/** Fields; without any, nothing. */
	fields(fields: Fields): this {
		if (fields.length === 0) {
			return this;
		}
		if (fields.length > LINK_FIELDS) {
			throw fault("link_fields", `${fields.length} fields are more than link_fields=${LINK_FIELDS}`);
		}
		this.u8(fields.length);
		for (const [name, value] of fields) {
			const text = encode(name);
			if (text.length > 0xff || value.length > 0xffff) {
				throw fault("link_head_bytes", `the field ${name.slice(0, 40)} is too long`);
			}
			this.u8(text.length).raw(text).u16(value.length).raw(value);
		}
		return this;
	}

	private reserve(bytes: number): number {
		const at = this.at;
		this.at += bytes;
		if (this.at > this.bytes.length) {
			const larger = new Uint8Array(Math.max(this.at, this.bytes.length * 2));
			larger.set(this.bytes);
			this.bytes = larger;
			this.view = new DataView(larger.buffer);
		}
		return at;
	}
}

/** Writes the head that a kind has. */
export function writeHead(out: Head8, kind: Kind, head: Head): void {
	switch (kind) {
		case Kind.HELLO:
			out
				.raw(encode(MAGIC))
				.u16(head.oldest as number)
				.u16(head.newest as number);
			break;
		case Kind.WELCOME:
			out.u16(head.version as number);
			break;
		case Kind.ERROR:
		case Kind.FAIL:
			out.u16(head.number as number);
			break;
		case Kind.NODE:
			out.u32(head.number as number);
			break;
		case Kind.SUBSCRIBE: {
			const queue = encode(head.queue as string);
			out
				.u8(queue.length)
				.raw(queue)
				.raw(encode(head.pattern as string));
			break;
		}
		case Kind.PUBLISH:
		case Kind.CALL: {
			out.u32(head.origin as number).id(head.to as Id);
			if (kind === Kind.CALL) {
				out
					.u32(head.deadlineMs as number)
					.u8(head.choice as number)
					.u32(head.credit as number);
			}
			out.text16(head.subject as string).fields(head.fields as Fields);
			break;
		}
		case Kind.CREDIT:
			out.u32(head.items as number);
			break;
		case Kind.WINDOW:
			out.u32(head.bytes as number);
			break;
		case Kind.ALIVE:
			out.u32(head.blockedMs as number);
			break;
	}
}

/** Heads are written here, one after another. */
const scratch = new Head8(1024);

/** Writes a whole frame. */
export function writeFrame(kind: Kind, flags: number, id: Id, head: Head, payload: Uint8Array = NOTHING): Uint8Array {
	scratch.at = FIXED;
	writeHead(scratch, kind, head);
	const length = scratch.at - FIXED;
	if (length > LINK_HEAD_BYTES) {
		throw fault("link_head_bytes", `a head of ${length} bytes is longer than link_head_bytes=${LINK_HEAD_BYTES}`);
	}
	putFixed(scratch.view, kind, flags, id, length, payload.length);
	const frame = new Uint8Array(FIXED + length + payload.length);
	frame.set(scratch.bytes.subarray(0, FIXED + length));
	frame.set(payload, FIXED + length);
	return frame;
}

/** Writes the 16 bytes that every frame begins with. */
export function putFixed(view: DataView, kind: Kind, flags: number, id: Id, head: number, payload: number): void {
	view.setUint32(0, FIXED - 4 + head + payload, true);
	view.setUint8(4, kind);
	view.setUint8(5, flags);
	view.setUint16(6, head, true);
	view.setUint32(8, id.slot, true);
	view.setUint32(12, id.generation, true);
}

/** Fields as they are written, for frames whose payload they are. */
export function fieldBytes(fields: Fields): Uint8Array {
	const out = new Head8().fields(fields);
	return out.bytes.subarray(0, out.at);
}
