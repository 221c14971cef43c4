/** Clients over HTTP and what a page serves: who they are, and what they may call. */
import assert from "node:assert/strict";
import test from "node:test";
import { connect, context } from "tidewire";
import { encode } from "../src/text.js";
import { writeValue } from "../src/values/writer.js";
import { Kind } from "../src/wire/frames.js";
import { Hub } from "./python.js";
import { settled, World } from "./virtual.js";

const DESK = {
	who: (): string[] => {
		const { user, origin } = context();
		return [user, origin];
	},
	secret: (): string => "the till",
};
const OPEN = { visibility: "public", methods: { secret: { visibility: "private" } } } as const;

test("a handler knows who calls over HTTP, and private methods are not there", { timeout: 60_000 }, async () => {
	const hub = await Hub.start(["--http", "127.0.0.1:0", "--token", "till:register", "--token", "ana:analyst8"]);
	try {
		await using node = await connect(hub.url, { token: "register" });
		await node.serve("desk", DESK, OPEN);
		const post = (path: string, body: unknown = []): Promise<Response> =>
			fetch(`${hub.http}/${path}`, {
				method: "POST",
				headers: { authorization: "Bearer analyst8", "content-type": "application/json" },
				body: JSON.stringify(body),
			});
		assert.deepEqual(await (await post("services/desk/who")).json(), ["ana", "public"]);
		assert.deepEqual(await node.client("desk").who?.(), ["till", "private"]);
		assert.equal((await post("services/desk/secret")).status, 404);
		const publisher = new Promise<string>((resolve) => {
			void node.subscribe("news", (_, { user }) => resolve(user)).then(() => post("subjects/news", 1));
		});
		assert.equal(await publisher, "ana");
	} finally {
		await hub.stop();
	}
});

test("a private method is refused to whom the hub says is public", async () => {
	const world = new World();
	const joining = world.join();
	await world.pass(0);
	const node = await joining;
	await node.serve("desk", { ...DESK, who: () => "somebody" }, { ...OPEN, instance: "one" });
	const to = world.last.of(Kind.SUBSCRIBE).find(({ head }) => head.pattern === "svc.desk.*");
	assert.ok(to);
	const { slot, generation } = to.frame;
	const ask = async (at: number, method: string, origin: string): Promise<number | undefined> => {
		const fields = [["tw-origin", encode(origin)]] as const;
		const head = { origin: 9, to: { slot, generation }, deadlineMs: 0, choice: 0, credit: 0, fields };
		world.last.say(
			Kind.CALL,
			2,
			{ slot: at, generation: 1 },
			{ ...head, subject: `svc.desk.${method}` },
			writeValue([]),
		);
		await settled();
		await world.pass(0);
		return world.last.said.findLast(({ frame }) => frame.answer && frame.slot === at)?.kind;
	};
	assert.equal(await ask(0, "who", "public"), Kind.REPLY);
	assert.equal(await ask(1, "secret", "public"), Kind.FAIL);
	assert.equal(await ask(2, "secret", "private"), Kind.REPLY);
});
