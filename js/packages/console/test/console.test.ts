/** The operator console in Chromium: a hub with traffic, failures and a killed worker. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import test, { after, before, describe } from "node:test";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { CallCancelled, connect, type Node } from "tidewire";
import { launch } from "../../client/test/chromium.js";
import { Hub, PYTHON } from "../../client/test/python.js";
import { HOSTILE, orders, sell, Traffic } from "./traffic.js";

const TOKEN = "a-token-of-the-tests";
const PATIENCE_MS = 30_000;
/** Markup that is the name of a service, a key or a lease. */
const MARK = "<img/src=x/onerror=alert(1)//";

describe("the console", { timeout: 240_000 }, () => {
	let browser: Browser;
	let hub: Hub;
	let folder: string;
	let traffic: Traffic;
	let seller: Traffic | undefined;
	let large: Hub | undefined;
	let shop: Promise<Node> | undefined;
	/** The node of the orders, which the first test that needs them publishes. */
	const till = (): Promise<Node> => {
		shop ??= orders(hub.url);
		return shop;
	};
	const problems: string[] = [];

	before(async () => {
		folder = mkdtempSync(`${tmpdir()}/tidewire-`);
		hub = await Hub.start(["--http", "127.0.0.1:0", "--console-admin", "--data", folder]);
		traffic = await Traffic.start(hub.url);
		browser = await launch();
	});

	after(async () => {
		await browser?.close();
		traffic?.stop();
		seller?.stop();
		await (await shop)?.close();
		await hub?.stop();
		await large?.stop();
		rmSync(folder, { recursive: true });
	});

	async function opened(url: string, width = 1280): Promise<Page> {
		const page = await browser.newPage({ viewport: { width, height: 900 } });
		page.setDefaultTimeout(PATIENCE_MS);
		page.on("pageerror", (error) => problems.push(error.message));
		page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
		await page.goto(url);
		return page;
	}

	/** Names of the rules of accessibility that a page breaks. */
	async function violations(page: Page): Promise<string[]> {
		await page.evaluate(axe.source);
		const found = (await page.evaluate("axe.run()")) as axe.AxeResults;
		return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" ")}`);
	}

	test("nodes and figures are those of the statistics", async () => {
		const page = await opened(`${hub.http}/console/#/nodes`);
		const row = page.getByRole("row", { name: /^trader/ });
		await row.getByText("running").waitFor();
		await page.getByRole("button", { name: "trader" }).click();
		const trader = page.getByRole("complementary", { name: "trader" });
		await trader.getByText("pricing").waitFor();
		const { sent_bytes } = await traffic.ask<Record<string, number>>("links");
		const out = /KiB in, ([\d.]+) KiB out, credit 64 MiB/;
		while (!(Number((await trader.innerText()).match(out)?.[1]) * 1024 >= (sent_bytes ?? 0) * 0.99)) {
			await page.waitForTimeout(100);
		}
		assert.match((await cells(page, "Nodes", "trader")).join(" "), /[\d.]+ (KiB|B) [\d.]+ (KiB|B) 64 MiB$/);
		assert.match(page.url(), /#\/nodes\/.+/);
		await page.keyboard.press("Escape");
		await page.getByRole("complementary").waitFor({ state: "detached" });
		await page.getByRole("button", { name: /^hub-/ }).click();
		await page
			.getByText(/^\d nodes, [\d,]+ forwarded, [\d,]+ calls, [\d,]+ published, 0 dropped, 0 refused$/)
			.waitFor();
		await page.keyboard.press("[");
		await page.getByRole("heading", { name: "Overview" }).waitFor();
		const calls = page.getByRole("article").filter({ hasText: "Calls per second" });
		await calls.getByText(/^[1-9]\d*(\.\d)?$/).waitFor();
		await page.close();
	});

	test("a form that follows from the schema calls a public method", async () => {
		const page = await opened(`${hub.http}/console/#/services`);
		await page.getByRole("button", { name: "pricing" }).click();
		await page.getByText("quote(symbol, qty)").click();
		await page.getByLabel(/^symbol string$/).fill("X");
		await page.getByLabel(/^qty integer, optional$/).fill("4");
		await page.getByRole("button", { name: "Call quote" }).click();
		await page.locator(".answer", { hasText: /^10\b/ }).waitFor();
		assert.match(await page.getByRole("complementary").innerText(), /Prices of symbols\..*1\.2\.3/s);
		await page.close();
	});

	test("failed calls and a full pool stand in words on the overview", async () => {
		const page = await opened(`${hub.http}/console/`);
		await page.getByText(/^Nothing\. 2 nodes, 1 service, 1 agent and 1 pool run\.$/).waitFor();
		traffic.say("fail");
		traffic.say("block");
		const concerns = page.getByRole("region", { name: "Needs attention" });
		await concerns.getByText(/^[\d,]+ of [\d,]+ calls failed \([\d.]+ %\) on trader$/).waitFor();
		await concerns.getByText("3 wait; 2 of 2 workers busy").waitFor();
		const [early] = await traffic.ask<{ errors: number }[]>("services");
		const shown = async (): Promise<number> =>
			Number((await concerns.getByText(/calls failed/).innerText()).split(" ")[0]?.replaceAll(",", ""));
		while ((await shown()) < (early?.errors ?? 0)) {
			await page.waitForTimeout(100);
		}
		const seen = await shown();
		const [late] = await traffic.ask<{ errors: number }[]>("services");
		assert.ok(seen <= (late?.errors ?? 0), `${seen} of at most ${late?.errors} errors`);
		traffic.say("kill");
		await concerns.getByText("1 worker replaced after a crash").waitFor();
		await page.close();
	});

	test("a table of many rows has the visible ones in the page, and finds the others", async () => {
		traffic.say("crowd");
		const page = await opened(`${hub.http}/console/#/actors`);
		await page.getByText(/^200 of 60\d$/).waitFor();
		await page.getByRole("button", { name: "Show 60" }).click();
		await page.locator(".tools", { hasText: /^60\d$/ }).waitFor();
		const [frame, rows] = [
			page.getByRole("region", { name: "Agents and actors" }),
			page.locator("tbody tr:not(.spacer)"),
		];
		await page.getByRole("button", { name: "Name" }).click();
		const first = await rows.first().innerText();
		await frame.evaluate((element) => element.scrollTo(0, element.scrollHeight));
		await rows.first().filter({ hasNotText: first }).waitFor();
		const count = await rows.count();
		assert.ok(count > 15 && count < 60, `${count} rows are in the page`);
		const [last = ""] = (await rows.last().innerText()).split(/\s/);
		await page.getByLabel("Filter agents and actors").fill(last);
		await page.getByText(/^1?\d of 60\d$/).waitFor();
		assert.ok((await rows.allInnerTexts()).every((row) => row.startsWith(last)));
		// The field of the search keeps what was typed, and the rows come from the nodes again.
		await page.getByLabel("Filter agents and actors").fill("desk");
		await page.getByRole("button", { name: "desk" }).waitFor();
		await page.getByText(/^1 of 60\d$/).waitFor();
		await page.close();
	});

	test("hundreds of streams are searched and sorted by the hub, and the page asks for the first ones", async () => {
		const data = mkdtempSync(`${folder}/`);
		large = await Hub.start(["--http", "127.0.0.1:0", "--console", "--data", data]);
		await using node = await connect(large.url);
		const names = Array.from({ length: 450 }, (_, at) => `stock-${String(at).padStart(3, "0")}`);
		for (let from = 0; from < names.length; from += 50) {
			await Promise.all(names.slice(from, from + 50).map((name) => node.stream(name, { subjects: [name] })));
		}
		await (await node.stream("stock-377")).publish("stock-377", 1);
		const page = await opened(`${large.http}/console/#/streams/stock-449`);
		await page.getByRole("complementary", { name: "stock-449" }).waitFor();
		await page.keyboard.press("Escape");
		await page.getByText(/^200 of 450$/).waitFor();
		await page.getByRole("button", { name: "Events" }).click();
		const first = page.locator("tbody tr:not(.spacer)").first();
		await first.filter({ hasText: "stock-377" }).waitFor();
		assert.equal(await page.getByRole("button", { name: "Per second" }).count(), 0);
		await page.getByLabel("Filter streams").fill("STOCK-12");
		await page.getByText(/^10 of 450$/).waitFor();
		await page.getByRole("button", { name: "Per second" }).waitFor();
		await page.close();
	});

	test("a trace is one tree over the nodes, from the links of a dead letter and a command, or by its id", async () => {
		traffic.say("fix");
		await traffic.ask("services");
		seller = await Traffic.start(hub.url, "shop");
		const id = await sell(hub.url, "tea");
		const page = await opened(`${hub.http}/console/#/trace`);
		await page.getByLabel("Trace id").fill("not an id");
		await page.keyboard.press("Enter");
		await page.getByRole("alert").getByText("“not an id” is not allowed: give 32 hex digits").waitFor();
		await page.getByLabel("Trace id").fill(`00-${id}-00f067aa0ba902b7-01`);
		await page.getByRole("button", { name: "Show" }).click();
		const spans = page.getByRole("region", { name: "Spans", exact: true });
		const list = async (): Promise<string[]> =>
			(await spans.locator("tbody tr").allInnerTexts()).map((row) => row.replaceAll(/\s+/g, " ").trim());
		await spans.getByText("process pricing/reprice").waitFor();
		const [sold, book] = ["pricing/quote", "process sales.new"];
		const tree = [
			/^shop\/sell server [\d.]+ (µs|ms) shop 0 µs$/,
			/^pricing\/quote client [\d.]+ (µs|ms) shop [\d.]+ (µs|ms)$/,
			/^pricing\/quote server .* trader /,
			/^publish sales.new producer .* shop /,
			/^process sales.new consumer .* shop /,
			/^publish pricing\/reprice producer .* shop /,
			/^process pricing\/reprice consumer .* trader /,
		];
		const rows = await list();
		assert.equal(rows.length, tree.length, rows.join("\n"));
		for (const [at, like] of tree.entries()) {
			assert.match(rows[at] ?? "", like);
		}
		await page.getByText(/^7 spans on 2 nodes, .*contains the call that it caused.* No host was moved\.$/).waitFor();
		await spans.getByRole("button", { name: book }).focus();
		await page.keyboard.press("Enter");
		const detail = page.getByRole("region", { name: /^Span [0-9a-f]{16}$/ });
		await detail.getByText("ValueError: no account of tea").waitFor();
		for (const width of [360, 1280, 2560]) {
			for (const colorScheme of ["dark", "light"] as const) {
				await page.setViewportSize({ width, height: 900 });
				await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
				assert.deepEqual(await violations(page), [], `${width}, ${colorScheme}`);
				assert.equal(await page.evaluate("document.documentElement.scrollWidth > innerWidth"), false, `${width} fits`);
			}
		}
		await page.setViewportSize({ width: 1280, height: 900 });
		await page.goto(`${hub.http}/console/#/dead-letters`);
		await page.getByRole("button", { name: "no account of" }).click();
		await page.getByRole("region", { name: "Letters" }).getByRole("button", { name: "1", exact: true }).click();
		await page.getByRole("link", { name: id }).click();
		await spans.getByText(sold).first().waitFor();
		await page.goBack();
		await confirm(page, "Drop 1 dead letter");
		await page.getByText("1 dead letter of book dropped").waitFor();
		await page.goto(`${hub.http}/console/#/commands/reprice-tea`);
		await page.getByRole("link", { name: id }).click();
		await spans.getByText(sold).first().waitFor();
		await page.goto(`${hub.http}/console/#/trace/${"0".repeat(32)}`);
		await page.getByText("None of the 2 nodes that store spans has this trace").waitFor();
		await page.close();
	});

	/** The texts of the cells of a row. */
	const cells = (page: Page, table: string, name: string): Promise<string[]> =>
		page.getByRole("region", { name: table }).getByRole("row", { name }).getByRole("cell").allInnerTexts();

	/** Acts, and says yes. */
	async function confirm(page: Page, label: string): Promise<void> {
		await page.getByRole("button", { name: label }).click();
		await page.getByRole("dialog").getByRole("button", { name: label }).click();
	}

	test("streams and consumers have the figures of the storage backend, and a purge asks for the name", async () => {
		const node = await till();
		const page = await opened(`${hub.http}/console/#/streams`);
		await page.getByRole("button", { name: "orders" }).waitFor();
		const stream = await node.stream("orders");
		const { messages, dead } = await stream.info();
		const row = await cells(page, "Streams", "orders");
		assert.deepEqual(
			[row[1], row[4], row[6]],
			[String(messages), "24 h, 1,000 events; drops the oldest", String(dead)],
		);
		await page.getByRole("button", { name: "orders" }).click();
		await page.getByRole("button", { name: "billing" }).waitFor();
		for (const { name, isPaused, lag, inFlight, waiting, redelivered, dead } of await stream.consumers()) {
			const shown = (await cells(page, "Consumers", name)).slice(0, 7);
			assert.deepEqual(shown, [
				name,
				isPaused ? "paused" : "delivers",
				...[lag, inFlight, waiting, redelivered, dead].map(String),
			]);
		}
		await page.getByRole("button", { name: "audit" }).click();
		await page.getByRole("button", { name: "Resume audit" }).click();
		await page.getByRole("button", { name: "Pause audit" }).waitFor();
		assert.equal((await stream.consumers())[0]?.isPaused, false);
		await page.getByLabel("Subjects").fill("orders.paid");
		await page.keyboard.press("Enter");
		await page
			.getByRole("region", { name: "Events" })
			.getByText("orders.created")
			.first()
			.waitFor({ state: "detached" });
		await page.getByRole("button", { name: "10", exact: true }).click();
		assert.match(await page.getByRole("region", { name: "Payload of event 10" }).innerText(), /"total": 9/);
		assert.deepEqual(await violations(page), []);
		await node.stream("drafts", { subjects: ["drafts"] });
		await page.goto(`${hub.http}/console/#/streams/drafts`);
		await (await node.stream("drafts")).publish("drafts", 1);
		await page.getByRole("button", { name: "Purge drafts" }).click();
		const purge = page.getByRole("dialog").getByRole("button", { name: "Purge drafts" });
		await page.getByLabel("to confirm").fill("draft");
		assert.ok(await purge.isDisabled());
		await page.getByLabel("to confirm").fill("drafts");
		await purge.click();
		await page.getByText("1 event removed from drafts").waitFor();
		assert.equal((await (await node.stream("drafts")).info()).messages, 0);
		await page.close();
	});

	test("dead letters are grouped by error, requeued one by one or as a group, and dropped", async () => {
		const node = await till();
		const dead = async (): Promise<number> => (await (await node.stream("orders")).info()).dead;
		const page = await opened(`${hub.http}/console/#/overview`);
		await page.getByRole("link", { name: "billing" }).first().click();
		await page.getByRole("button", { name: "RangeError: no such card" }).waitFor();
		const shown = await cells(page, "Dead letters", "no customer");
		assert.deepEqual(shown.slice(1, 4), ["2", "orders", "billing"]);
		await page.getByRole("button", { name: "no customer" }).click();
		await page.getByRole("button", { name: "2", exact: true }).click();
		await page.getByText("Traceback", { exact: true }).click();
		await page.getByText(/at orders/).waitFor();
		assert.match(await page.getByRole("region", { name: "Payload of event 2" }).innerText(), /"total": 1/);
		assert.deepEqual(await violations(page), []);
		const act = async (label: string, said: string, left: number): Promise<void> => {
			await confirm(page, label);
			await page.getByText(said).waitFor();
			assert.equal(await dead(), left);
		};
		await page.getByRole("checkbox", { name: "Mark 3" }).check();
		await act("Requeue 1 dead letter", "1 dead letter of billing requeued", 3);
		await act("Drop 1 dead letter", "1 dead letter of billing dropped", 2);
		await page.getByRole("button", { name: "no such card" }).click();
		await act("Requeue 2 dead letters", "2 dead letters of billing requeued", 0);
		await page.getByText("No dead letters").waitFor();
		await page.close();
	});

	test("a key is put and deleted unless another came first, and its history stays", async () => {
		const bucket = await (await till()).kv("config", { history: 5 });
		await Promise.all(Array.from({ length: 100 }, (_, at) => bucket.put(`limits.n${at + 100}`, at)));
		await bucket.put("note", HOSTILE);
		const page = await opened(`${hub.http}/console/#/buckets/config`);
		await page.getByRole("button", { name: "Next 100" }).click();
		const { keys, bytes, revision } = await bucket.info();
		const row = await cells(page, "Key-value", "config");
		assert.deepEqual(row.slice(0, 4), ["config", `${keys}`, `${(bytes / 1024).toPrecision(3)} KiB`, `${revision}`]);
		await page.getByRole("button", { name: "note", exact: true }).click();
		await page.getByRole("region", { name: "Value of note" }).getByText(HOSTILE).waitFor();
		assert.deepEqual(await violations(page), []);
		const dialog = page.getByRole("dialog");
		await page.getByRole("button", { name: "Put note" }).click();
		await bucket.put("note", 2);
		await dialog.getByLabel("Value").fill("[3]");
		await page.getByRole("region", { name: "Value of note" }).getByText("2", { exact: true }).waitFor();
		await dialog.getByRole("button", { name: "Put note" }).click();
		await page.getByText(/^Put note: .*revision/).waitFor();
		assert.equal((await bucket.get("note"))?.value, 2);
		await page.getByRole("button", { name: "Put note" }).click();
		await dialog.getByLabel("Value").fill("[4]");
		await dialog.getByRole("button", { name: "Put note" }).click();
		await page.getByText("note put, revision").waitFor();
		assert.deepEqual((await bucket.get("note"))?.value, [4]);
		await confirm(page, "Delete note");
		await page.getByText("note deleted, revision").waitFor();
		assert.deepEqual([(await bucket.get("note"))?.value, (await bucket.history("note")).length], [undefined, 4]);
		await page.getByLabel("Keys that match").fill("limits.n19*");
		await page.keyboard.press("Enter");
		await page.getByRole("alert").waitFor();
		await page.close();
	});

	test("a lease has its holder and fence, and whoever types its name releases it", async () => {
		const node = await till();
		const lease = await node.lease("nightly", { holder: HOSTILE, ttl: 60_000 });
		const page = await opened(`${hub.http}/console/#/leases/nightly`);
		await page.getByRole("button", { name: "Release nightly" }).click();
		const [, fence, , holder] = await cells(page, "Leases", "nightly");
		assert.deepEqual([fence, holder], [`${lease.fence}`, HOSTILE]);
		assert.deepEqual(await violations(page), []);
		await page.getByLabel("to confirm").fill("nightly");
		await page.getByRole("dialog").getByRole("button", { name: "Release nightly" }).click();
		await page.getByText(`nightly: fence ${lease.fence} is released`).waitFor();
		await using next = await node.lease("nightly", { holder: "next" });
		await page.getByRole("row", { name: new RegExp(`^nightly ${next.fence} .* next$`) }).waitFor();
		await page.close();
		await lease.release();
	});

	test("a command is cancelled while it runs, and another is retried after a fix", async () => {
		await using node = await connect(hub.url);
		const commands = await node.commands();
		traffic.say("fail");
		await traffic.ask("services");
		const failing = await commands.start("pricing", "reprice", [HOSTILE], { id: "failing" });
		await assert.rejects(failing.result(), /no market data/);
		const slow = await commands.start("pricing", "reprice", ["slow"], { id: "slow", key: HOSTILE });
		for await (const { fraction } of slow.progress()) {
			if (fraction === 0.5) {
				break;
			}
		}
		const page = await opened(`${hub.http}/console/#/commands`);
		await page.getByRole("row", { name: "running" }).waitFor();
		for (const { stage, fraction, attempt, retries, key } of await commands.list()) {
			const shown = (await cells(page, "Commands", stage)).slice(0, 4);
			assert.deepEqual(shown, ["pricing.reprice", stage, `${fraction * 100} %`, `${attempt} of ${retries + 1}`], key);
		}
		const act = async (stage: string, label: string): Promise<void> => {
			await page.getByRole("row", { name: stage }).getByRole("button").click();
			await confirm(page, label);
		};
		await act("running", "Cancel slow");
		await assert.rejects(slow.result(), CallCancelled);
		traffic.say("fix");
		await traffic.ask("services");
		await act("failed", "Retry failing");
		await page.getByText("failing is queued").waitFor();
		assert.deepEqual(await failing.result(), { symbol: HOSTILE });
		await page.getByRole("region", { name: "Result" }).getByText("symbol").waitFor();
		assert.deepEqual(await violations(page), []);
		await page.close();
	});

	test("markup in names, subjects, keys, payloads and errors stays text in every view", async () => {
		await using node = await connect(hub.url, { name: HOSTILE });
		const fail = (): never => {
			throw new Error(HOSTILE);
		};
		await node.serve(MARK, { fail }, { description: HOSTILE, visibility: "public" });
		const marks = await node.stream("marks", { subjects: ["marks.>"] });
		await marks.publish(`marks.${MARK}`, HOSTILE);
		const event = await (await marks.consumer("marker", { start: "all", maxDeliver: 1 })).next();
		await event?.nak({ error: new Error(HOSTILE), wait: true });
		await (await node.kv("config")).put(MARK, HOSTILE);
		await using _ = await node.lease(MARK, { holder: HOSTILE });
		await (await node.commands()).start("pricing", "reprice", [HOSTILE], { id: MARK, key: HOSTILE });
		const page = await browser.newPage();
		const dialogs: string[] = [];
		page.on("dialog", (dialog) => void dialog.dismiss().finally(() => dialogs.push(dialog.message())));
		await page.goto(`${hub.http}/console/#/services/${encodeURIComponent(MARK)}`);
		await page.getByText("fail()").click();
		await page.getByRole("button", { name: "Call fail" }).click();
		await page.getByRole("alert").getByText(HOSTILE).waitFor();
		const marked = "Nodes,Services,Agents and actors,Streams,Dead letters,Key-value,Leases,Commands".split(",");
		const seen = new Set<string>();
		for (const name of await page.getByRole("navigation").getByRole("link").allInnerTexts()) {
			await page.getByRole("link", { name, exact: true }).click();
			await page.getByRole("heading", { name, level: 1 }).waitFor();
			for (const box of await page.getByLabel("Tidewire’s own").all()) {
				await box.check();
			}
			const until = Date.now() + PATIENCE_MS;
			do {
				for (let at = 0; at < 60; at++) {
					const row = page.locator("main button.link:visible").nth(at);
					if ((await row.count()) === 0) {
						break;
					}
					await row.click();
					(await page.locator("main").innerText()).includes("<img") && seen.add(name);
				}
				// The details of a row, and their rows, come with an answer of the hub.
			} while (marked.includes(name) && !seen.has(name) && Date.now() < until);
			const made = page.locator("main :is(img, script, iframe, object, [onerror], [onload]), body[data-broken]");
			assert.deepEqual([await made.count(), dialogs], [0, []], name);
		}
		assert.deepEqual([...seen], marked);
		await assert.rejects(page.addScriptTag({ content: "document.body.dataset.broken = 1" }), /Content Security Policy/);
		await page.close();
	});

	test("a campaign has its progress, its workers and its failed runs, and is paused, resumed and cancelled", async () => {
		traffic.say(`simulate ${folder}/study.db`);
		const page = await opened(`${hub.http}/console/#/campaigns`);
		await page.getByRole("button", { name: "study" }).click();
		const detail = page.getByRole("complementary", { name: "study" });
		await detail.getByText(/^[1-9][\d,]* of 100,000, [1-9]\d* failed$/).waitFor();
		await detail.getByRole("row", { name: /working.*process/ }).waitFor();
		await detail.getByText("Run 1: ValueError: no sample of 1", { exact: true }).waitFor();
		assert.deepEqual(await violations(page), []);
		const study = (): Promise<[reason: string, done: number, leased: number]> => traffic.ask("study");
		await confirm(page, "Pause study");
		while ((await study())[2] > 0) {
			await page.waitForTimeout(50);
		}
		const [reason, done] = await study();
		assert.match(reason, /^by console-/);
		await detail.getByText(`${done.toLocaleString("en")} of 100,000`).waitFor();
		await page.getByRole("button", { name: "Resume study" }).click();
		await page.getByRole("button", { name: "Pause study" }).waitFor();
		while ((await study())[1] === done) {
			await page.waitForTimeout(50);
		}
		await page.getByRole("button", { name: "Cancel study" }).click();
		await page.getByLabel("to confirm").fill("study");
		await page.getByRole("dialog").getByRole("button", { name: "Cancel study" }).click();
		await page.getByText("study is cancelled").waitFor();
		await detail.waitFor({ state: "detached" });
		assert.equal(await traffic.ask("report"), "cancelled");
		await page.close();
	});

	test("a pool is scaled within its limits, follows its load again, and is drained", async () => {
		traffic.say("open");
		const page = await opened(`${hub.http}/console/#/pools/spare`);
		const detail = page.getByRole("complementary", { name: "spare" });
		await detail.getByText("1 to 4, by its load").waitFor();
		await page.getByRole("button", { name: "Scale spare" }).click();
		const dialog = page.getByRole("dialog");
		for (const workers of ["5", "3"]) {
			await dialog.getByLabel("Workers, 1 to 4").fill(workers);
			await dialog.getByRole("button", { name: "Scale spare" }).click();
		}
		await detail.getByText("1 to 4, set to 3").waitFor();
		assert.deepEqual(await traffic.ask("spare"), ["running", 3]);
		assert.deepEqual(await violations(page), []);
		await page.getByRole("button", { name: "Let spare follow its load" }).click();
		await detail.getByText("1 to 4, by its load").waitFor();
		await page.getByRole("button", { name: "Drain spare" }).click();
		await page.getByLabel("to confirm").fill("spare");
		await dialog.getByRole("button", { name: "Drain spare" }).click();
		await page.getByText("spare takes no more tasks").waitFor();
		await detail.waitFor({ state: "detached" });
		assert.equal((await traffic.ask<[string, number]>("spare"))[0], "stopped");
		await page.close();
	});

	test("no view breaks a rule of accessibility, dark or light", async () => {
		for (const colorScheme of ["dark", "light"] as const) {
			const page = await opened(`${hub.http}/console/`, colorScheme === "dark" ? 360 : 1280);
			await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
			const links = page.getByRole("navigation").getByRole("link");
			for (const name of await links.allInnerTexts()) {
				await page.getByRole("link", { name, exact: true }).click();
				await page.getByRole("heading", { name, level: 1 }).waitFor();
				assert.deepEqual(await violations(page), [], `${name}, ${colorScheme}`);
				const overflow = await page.evaluate("document.documentElement.scrollWidth > innerWidth");
				assert.equal(overflow, false, `${name} fits`);
			}
			await page.close();
		}
	});

	test("a lost hub stands out, and the page joins again by itself", async () => {
		const data = mkdtempSync(`${folder}/`);
		const first = await Hub.start(["--http", "127.0.0.1:0", "--console", "--data", data]);
		await (await orders(first.url)).close();
		const page = await opened(`${first.http}/console/#/streams/orders`);
		await page.locator("[data-state=ready]").waitFor();
		assert.match(await page.locator("[data-state]").innerText(), /looking only/);
		await page.getByRole("button", { name: "12", exact: true }).click();
		await page.getByText("This console may see no payload: start the hub with --console-admin.").waitFor();
		assert.ok(await page.getByRole("button", { name: "Purge orders" }).isDisabled());
		await page.goto(`${first.http}/console/#/overview`);
		assert.deepEqual(problems, []);
		await first.stop();
		await page.getByRole("alert").getByText("The hub is lost.").waitFor();
		const second = await Hub.start(["--http", new URL(first.http).host, "--console"]);
		await page.locator("[data-state=ready]").waitFor();
		await page.getByText(/^Nothing\. 1 node/).waitFor();
		await page.close();
		await second.stop();
		problems.length = 0;
	});

	test("a hub with tokens asks for one, which no address and no other tab has, and shows its rights", async () => {
		const data = mkdtempSync(`${folder}/`);
		const tokens = ["--token", TOKEN, "--inspect-token", `viewer:${TOKEN}-viewer`, "--admin-token", `ops:${TOKEN}-ops`];
		const secured = await Hub.start(["--http", "127.0.0.1:0", "--console", "--data", data, ...tokens]);
		await (await orders(secured.url, HOSTILE, TOKEN)).close();
		for (const right of ["viewer", "ops"]) {
			const page = await opened(`${secured.http}/console/#/streams/orders`);
			await page.getByLabel("Token").fill("not-the-token");
			await page.getByRole("button", { name: "Join" }).click();
			await page.getByRole("alert").getByText("does not know the token").waitFor();
			assert.deepEqual(await violations(page), []);
			await page.getByLabel("Token").fill(`${TOKEN}-${right}`);
			await page.keyboard.press("Enter");
			await page.getByRole("button", { name: "12", exact: true }).waitFor();
			await page.reload();
			await page.getByRole("button", { name: "12", exact: true }).click();
			assert.ok(!page.url().includes(TOKEN));
			const purge = page.getByRole("button", { name: "Purge orders" });
			if (right === "viewer") {
				await page.getByText("This token may see no payload: give it inspect_payloads = true at the hub.").waitFor();
				const why = "This token may only look: give it admin = true at the hub.";
				assert.deepEqual([await purge.isDisabled(), await purge.getAttribute("title")], [true, why]);
			} else {
				await page.getByRole("region", { name: "Payload of event 12" }).waitFor();
				await purge.click();
				await page.getByLabel("to confirm").fill("orders");
				await page.getByRole("dialog").getByRole("button", { name: "Purge orders" }).click();
				await page.getByText("12 events removed from orders").waitFor();
			}
			await page.close();
		}
		problems.length = 0;
		await secured.stop();
	});

	test("the console of a hub without tokens does not listen for other machines", async () => {
		const up = "-m tidewire up --listen ws://127.0.0.1:0 --http 0.0.0.0:0 --insecure --console".split(" ");
		const { status, stderr } = spawnSync(PYTHON, up, { encoding: "utf8" });
		assert.equal(status, 1);
		assert.match(stderr, /console: everybody who reaches .* could look/);
	});
});
