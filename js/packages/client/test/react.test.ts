/** `@tidewire/react` in Chromium, in React's strict mode, and the types of its README. */
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import test, { after, before, describe } from "node:test";
import { build } from "esbuild";
import type { Browser, Page } from "playwright-core";
import { connect, type Node } from "tidewire";
import ts from "typescript";
import { launch } from "./chromium.js";
import { Peer, ROOT } from "./python.js";

const APP = `
import { useCall, useNode, useStream, useSubject } from "@tidewire/react";
import { createElement as h, StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";

function Prices({ node }) {
	const [qty, setQty] = useState(1);
	const [method, setMethod] = useState("slow");
	const pricing = node.client("pricing");
	const quote = useCall((signal) => pricing.with({ signal }).quote("X", qty), [node, qty]);
	const other = useCall((signal) => pricing.with({ signal })[method](...(method === "broken" ? ["till"] : [])), [node, method]);
	const ticks = useStream(() => pricing.ticks("X", 1000), [node], { keep: 3 });
	const endless = useStream(() => pricing.ticks("Y"), [node], { keep: 1 });
	const orders = useSubject(node, "orders.*", { keep: 2 });
	window.seen.push([qty, quote.status, quote.value?.price]);
	Object.assign(window, { node, setQty, setMethod, quote, other, ticks, endless, orders });
	return h("p", null, [quote.status, other.status, ticks.status, orders.items.length].join(" "));
}

function App({ url }) {
	const joined = useNode(url, { name: "react" });
	window.joined = joined;
	return joined.value ? h(Prices, { node: joined.value }) : null;
}

window.seen = [];
window.root = createRoot(document.body.appendChild(document.createElement("div")));
window.show = (url) => root.render(h(StrictMode, null, h(App, { url })));
`;

describe("@tidewire/react", { timeout: 120_000 }, () => {
	let hub: Peer;
	let python: Peer;
	let node: Node;
	let browser: Browser;
	let page: Page;
	type State = { open: number; begun: number; cancelled: number };
	const state = (): Promise<State> => node.client<{ state(): Promise<State> }>("pricing").state();
	const until = async (expression: string): Promise<void> => void (await page.waitForFunction(expression));

	before(async () => {
		hub = await Peer.start("hub");
		python = await Peer.start("server", hub.url);
		node = await connect(hub.url);
		const { outputFiles } = await build({
			stdin: { contents: APP, resolveDir: `${ROOT}js`, loader: "js" },
			bundle: true,
			format: "esm",
			platform: "browser",
			tsconfigRaw: "{}",
			write: false,
		});
		browser = await launch();
		page = await browser.newPage();
		await page.setContent("<!doctype html><title>react</title>");
		await page.addScriptTag({ type: "module", content: outputFiles[0]?.text ?? "" });
		await page.evaluate(`show(${JSON.stringify(hub.url)})`);
		await until("window.quote?.status === 'done' && ticks.status === 'ended'");
	});

	after(async () => {
		await browser?.close();
		await node?.close();
		await python?.stop();
		await hub?.stop();
	});

	test("a component gets its values, and no value of other arguments", async () => {
		assert.equal(await page.evaluate("quote.value.price"), 2.5);
		assert.deepEqual(await page.evaluate("ticks.items"), [498.5, 499, 499.5]);
		await page.evaluate("setQty(4)");
		await until("quote.value?.price === 10");
		const seen = (await page.evaluate("seen")) as [number, string, number?][];
		assert.ok(seen.some(([qty, status]) => qty === 4 && status === "loading"));
		assert.ok(seen.every(([qty, status, price]) => status === "loading" || price === qty * 2.5));
	});

	test("a dependency that changes cancels the call before, and a call that fails can be made again", async () => {
		const before = await state();
		assert.equal(before.begun - before.cancelled, 1);
		await page.evaluate("setMethod('broken')");
		await until("other.status === 'failed' && /till/.test(other.error.message)");
		const now = await state();
		assert.equal(now.cancelled, now.begun);
		await page.evaluate("window.failed = other.error; other.reload()");
		await until("other.status === 'failed' && other.error !== failed");
	});

	test("messages of a subject arrive, and the last ones are kept", async () => {
		// The subscription is known to the hub at some time.
		do {
			node.publish("orders.0", { id: 0 });
		} while ((await page.evaluate("orders.status")) === "loading");
		for (const id of [1, 2, 3]) {
			node.publish(`orders.${id}`, { id });
		}
		await until("orders.latest?.value.id === 3");
		assert.deepEqual(await page.evaluate("orders.items.map(({ subject }) => subject)"), ["orders.2", "orders.3"]);
	});

	test("the end of a component closes its streams and its node", async () => {
		assert.equal((await state()).open, 1);
		await page.evaluate("window.last = node; root.unmount()");
		await until("last.hub === undefined");
		for (let asked = 0; (await state()).open > 0; asked++) {
			assert.ok(asked < 5_000, "the generator is closed");
		}
	});
});

test("the README is held to the types", () => {
	const folder = `${ROOT}js/packages/react/build`;
	mkdirSync(folder, { recursive: true });
	const readme = readFileSync(`${ROOT}js/packages/react/README.md`, "utf8");
	writeFileSync(`${folder}/readme.tsx`, /```tsx\n(.*?)```/s.exec(readme)?.[1] ?? "");
	const program = ts.createProgram([`${folder}/readme.tsx`], {
		strict: true,
		noUncheckedIndexedAccess: true,
		exactOptionalPropertyTypes: true,
		noEmit: true,
		skipLibCheck: true,
		types: [],
		jsx: ts.JsxEmit.ReactJSX,
		target: ts.ScriptTarget.ES2022,
		module: ts.ModuleKind.NodeNext,
		moduleResolution: ts.ModuleResolutionKind.NodeNext,
		lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts", "lib.dom.d.ts"],
	});
	const problems = ts.getPreEmitDiagnostics(program).map(({ messageText }) => messageText);
	assert.deepEqual(problems, []);
});
