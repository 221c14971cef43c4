/** Clock, timers and the rest of the platform, but for sockets. */
import type { Shell, Socket, SocketEvents } from "./shell.js";

type Open = (url: string, protocol: string, events: SocketEvents) => Socket;
type Timeout = ReturnType<typeof setTimeout>;

/** The longest time that timers of browsers and Node take. */
const TIMER_MAX_MS = 2 ** 31 - 1;

/** A shell whose sockets are opened by a function. */
export function shellOf(open: Open): Shell {
	let timer: Timeout | undefined;
	const registry =
		typeof FinalizationRegistry === "undefined"
			? undefined
			: new FinalizationRegistry<() => void>((collected) => collected());
	return {
		now: () => performance.now(),
		wake: (at, wake) => {
			clearTimeout(timer);
			timer =
				at === Number.POSITIVE_INFINITY
					? undefined
					: setTimeout(wake, Math.min(TIMER_MAX_MS, Math.max(0, at - performance.now())));
		},
		soon: (run) => queueMicrotask(run),
		open,
		randomBytes: (count) => crypto.getRandomValues(new Uint8Array(count)),
		watch: (object, collected) => registry?.register(object, collected),
		online: (retry) => {
			const target = globalThis as Partial<Pick<EventTarget, "addEventListener" | "removeEventListener">>;
			// Also when a page comes to the front again: its timers may have been asleep.
			const events = ["online", "pageshow", "focus"];
			for (const event of events) {
				target.addEventListener?.(event, retry);
			}
			return () => {
				for (const event of events) {
					target.removeEventListener?.(event, retry);
				}
			};
		},
		report: (error) => console.error(error),
	};
}
