/** Two tabs and a worker of Chromium on one hub, with a node of Python. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import test, { after, before, describe } from "node:test";
import { build } from "esbuild";
import type { Browser, Page } from "playwright-core";
import { connect, type Node } from "tidewire";
import { launch } from "./chromium.js";
import { Hub, Peer, ROOT } from "./python.js";

const WORKER = `
import { connect } from "/tidewire.js";
onmessage = async ({ data: url }) => {
	const node = await connect(url, { name: "worker" });
	await node.serve("work", {
		double: (n) => n * 2,
		async *upto(n) { for (let i = 0; i < n; i++) yield i; },
	});
	postMessage("ready");
};
`;

const FILES: Record<string, { type: string; text: string }> = {
	"/": { type: "text/html", text: "<!doctype html><title>tidewire</title>" },
	"/worker.js": { type: "text/javascript", text: WORKER },
};

/** Code of a page, as text: it runs there. */
function within<T>(page: Page, body: string, ...args: unknown[]): Promise<T> {
	const run = `async (args) => { const { connect, named, remote } = await import("/tidewire.js"); ${body} }`;
	return page.evaluate(`(${run})(${JSON.stringify(args)})`) as Promise<T>;
}

describe("in Chromium", { timeout: 120_000 }, () => {
	let hub: Peer;
	let python: Peer;
	let site: Server;
	let browser: Browser;
	let node: Node;
	const pages: Page[] = [];
	/** Paths that pages have requested, in order. */
	const loaded: string[] = [];
	const later = (): number => loaded.filter((path) => path.startsWith("/lazy_chunk-")).length;

	before(async () => {
		hub = await Peer.start("hub");
		python = await Peer.start("server", hub.url);
		node = await connect(hub.url, { name: "watcher" });
		const { outputFiles } = await build({
			entryPoints: { tidewire: `${ROOT}js/packages/client/dist/index.js` },
			outdir: "/",
			bundle: true,
			splitting: true,
			format: "esm",
			platform: "browser",
			tsconfigRaw: "{}",
			write: false,
		});
		for (const { path, text } of outputFiles) {
			FILES[`/${basename(path)}`] = { type: "text/javascript", text };
		}
		site = createServer((request, response) => {
			const file = FILES[request.url ?? ""];
			loaded.push(request.url ?? "");
			response.writeHead(file ? 200 : 404, { "content-type": file?.type ?? "text/plain" });
			response.end(file?.text);
		});
		await new Promise<void>((resolve) => site.listen(0, "127.0.0.1", resolve));
		browser = await launch();
		const { port } = site.address() as AddressInfo;
		for (const name of ["one", "two"]) {
			const page = await browser.newPage();
			await page.goto(`http://127.0.0.1:${port}/`);
			await within(page, "window.node = await connect(args[0], { name: args[1] });", hub.url, name);
			pages.push(page);
		}
	});

	after(async () => {
		await browser?.close();
		await node?.close();
		site?.close();
		await python?.stop();
		await hub?.stop();
	});

	test("a page loads the later part with the first function that it gives, once", async () => {
		const [one] = pages as [Page];
		assert.equal(later(), 0);
		const call = `return (await node.client("pricing").quote("X", named({ qty: 3 }))).price;`;
		assert.equal(await within(one, call), 7.5);
		assert.equal(later(), 0);
		const give = `const seen = []; await node.client("shop").pack(2, (n) => seen.push(n)); return seen;`;
		assert.deepEqual(await within(one, give), [0, 1]);
		assert.deepEqual(await within(one, give), [0, 1]);
		assert.equal(later(), 1);
	});

	test("two tabs and a worker call each other, and Python", async () => {
		const [one, two] = pages as [Page, Page];
		const started = await within(
			one,
			`const worker = new Worker("/worker.js", { type: "module" });
			return new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); worker.postMessage(args[0]); });`,
			hub.url,
		);
		assert.equal(started, "ready");
		await within(
			one,
			`window.seen = []; await node.serve("board", { draw: (n) => seen.push(n), ask: async (q) => q + "? yes" });`,
		);
		const answers = await within<unknown[]>(
			two,
			`const board = node.client("board"), work = node.client("work"), shop = node.client("shop");
			for (let n = 0; n < 3; n++) await board.draw(await work.double(n));
			const items = [];
			for await (const item of work.upto(200)) items.push(item);
			const progress = [];
			const packed = await shop.pack(3, (n) => progress.push(n));
			const quote = await node.client("pricing").quote("X", named({ qty: 3 }));
			return [await board.ask("really"), items.length, progress, packed, quote.price];`,
		);
		assert.deepEqual(answers, ["really? yes", 200, [0, 1, 2], "packed", 7.5]);
		assert.deepEqual(await within(one, "return seen;"), [0, 2, 4]);
		// Python calls what the tab serves.
		assert.equal(await node.client("driver").call?.("board", "ask", ["Python"], {}), "Python? yes");
	});

	test("a handler of a page has its context until its first await, and so have its calls", async () => {
		const [one, two] = pages as [Page, Page];
		await within(
			one,
			`const { context } = await import("/tidewire.js");
			const who = () => ({ node: context().node, trace: context().trace });
			await node.serve("inner", { who });
			await node.serve("outer", {
				async who() {
					const inner = node.client("inner").who(), own = who();
					const called = await inner;
					try { return [own, called, context()]; } catch ({ code }) { return [own, called, code]; }
				},
			});`,
		);
		const [own, called, after] = await within<[{ node: string; trace: string }, { trace: string }, string]>(
			two,
			`return await node.client("outer").who();`,
		);
		assert.deepEqual([own.node, own.trace, after], ["two", called.trace, "invalid_argument"]);
	});

	test("long values go both ways", async () => {
		const [one] = pages as [Page];
		const result = await within(
			one,
			`const echo = node.client("values");
			const long = new Uint8Array(3_000_000).map((_, n) => n & 255);
			const back = await echo.echo(long);
			const array = await echo.get("long array");
			return [back.length, back.every((byte, n) => byte === (n & 255)), array.dtype, array.data[9999]];`,
		);
		assert.deepEqual(result, [3_000_000, true, "<i4", 9999]);
	});

	test("streams and buckets of a hub: a page and a node of Node share them", async () => {
		const [one] = pages as [Page, Page];
		const folder = mkdtempSync(join(tmpdir(), "tidewire-"));
		const durable = await Hub.start(["--data", folder]);
		const beside = await connect(durable.url);
		const jobs = await beside.stream<number>("jobs", { subjects: ["jobs"] });
		await Promise.all([1, 2, 3].map((n) => jobs.publish("jobs", n)));
		const seen = await within(
			one,
			`const page = await connect(args[0]);
			const config = await page.kv("config", { history: 2 });
			const revision = await config.put("most", 3);
			const refused = await config.update("most", 4, { revision: revision + 1 }).catch((error) => error.code);
			const jobs = await page.stream("jobs");
			const work = await jobs.consumer("work", { start: "all" });
			const seen = [refused];
			for await (const event of work) {
				seen.push(event.value);
				await event.ack();
				if (seen.length === 4) break;
			}
			seen.push((await jobs.publish("jobs", new Uint8Array(100_000))).sequence);
			await page.close();
			return seen;`,
			durable.url,
		);
		assert.deepEqual(seen, ["revision_conflict", 1, 2, 3, 4]);
		assert.equal((await (await beside.kv("config")).get("most"))?.value, 3);
		assert.equal((await jobs.consumers())[0]?.ackedTo, 3);
		await beside.close();
		await durable.stop();
		rmSync(folder, { recursive: true });
	});

	test("a page that is closed in the middle of a stream ends the generator there", async () => {
		const [, two] = pages as [Page, Page];
		const pricing = node.client<{ state(): Promise<{ open: number }> }>("pricing");
		await within(
			two,
			`window.items = node.client("pricing").ticks("X")[Symbol.asyncIterator]();
			for (let n = 0; n < 10; n++) await items.next();`,
		);
		assert.equal((await pricing.state()).open, 1);
		await two.close();
		for (let asked = 0; (await pricing.state()).open > 0; asked++) {
			assert.ok(asked < 5_000, "the generator is closed");
		}
	});
});
