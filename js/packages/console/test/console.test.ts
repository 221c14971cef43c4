/** The operator console in Chromium: a hub with traffic, failures and a killed worker. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import test, { after, before, describe } from "node:test";
import axe from "axe-core";
import type { Browser, Page } from "playwright-core";
import { launch } from "../../client/test/chromium.js";
import { Hub, PYTHON } from "../../client/test/python.js";
import { Traffic } from "./traffic.js";

const TOKEN = "a-token-of-the-tests";
const PATIENCE_MS = 30_000;

describe("the console", { timeout: 240_000 }, () => {
	let browser: Browser;
	let hub: Hub;
	let traffic: Traffic;
	const problems: string[] = [];

	before(async () => {
		hub = await Hub.start(["--http", "127.0.0.1:0", "--console-admin"]);
		traffic = await Traffic.start(hub.url);
		browser = await launch();
	});

	after(async () => {
		await browser?.close();
		traffic?.stop();
		await hub?.stop();
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

	test("its answers allow no foreign script, frame or page", async () => {
		const { headers } = await fetch(`${hub.http}/console/`);
		const policy = headers.get("content-security-policy") ?? "";
		for (const part of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "connect-src 'self'"]) {
			assert.ok(policy.includes(part), part);
		}
		assert.equal(headers.get("x-frame-options"), "DENY");
		const upgrade = {
			connection: "upgrade",
			upgrade: "websocket",
			"sec-websocket-version": "13",
			"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
			"sec-websocket-protocol": "tidewire.v1",
		};
		const { request } = await import("node:http");
		const status = (origin: string): Promise<number | undefined> =>
			new Promise((resolve, reject) => {
				const asked = request(`${hub.http}/console/link`, { headers: { ...upgrade, origin } });
				asked.on("response", (response) => resolve(response.statusCode));
				asked.on("upgrade", (response, socket) => {
					socket.destroy();
					resolve(response.statusCode);
				});
				asked.on("error", reject).end();
			});
		assert.equal(await status("http://evil.example"), 403);
		assert.equal(await status(hub.http), 101);
	});

	test("nodes and figures are those of the statistics", async () => {
		const page = await opened(`${hub.http}/console/#/nodes`);
		const row = page.getByRole("row", { name: /^trader/ });
		await row.getByText("running").waitFor();
		await page.getByRole("button", { name: "trader" }).click();
		await page.getByRole("complementary", { name: "trader" }).getByText("pricing").waitFor();
		assert.match(page.url(), /#\/nodes\/.+/);
		await page.keyboard.press("Escape");
		await page.getByRole("complementary").waitFor({ state: "detached" });
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
		const [early] = await traffic.ask<{ errors: number }[]>("statistics");
		const shown = async (): Promise<number> =>
			Number((await concerns.getByText(/calls failed/).innerText()).split(" ")[0]?.replaceAll(",", ""));
		while ((await shown()) < (early?.errors ?? 0)) {
			await page.waitForTimeout(100);
		}
		const seen = await shown();
		const [late] = await traffic.ask<{ errors: number }[]>("statistics");
		assert.ok(seen <= (late?.errors ?? 0), `${seen} of at most ${late?.errors} errors`);
		traffic.say("kill");
		await concerns.getByText("1 worker replaced after a crash").waitFor();
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
		const first = await Hub.start(["--http", "127.0.0.1:0", "--console"]);
		const page = await opened(`${first.http}/console/`);
		await page.locator("[data-state=ready]").waitFor();
		assert.match(await page.locator("[data-state]").innerText(), /looking only/);
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

	test("a hub with tokens asks for one, which no address and no other tab has", async () => {
		const secured = await Hub.start(["--http", "127.0.0.1:0", "--console", "--token", `ops:${TOKEN}`]);
		const page = await opened(`${secured.http}/console/`);
		await page.getByLabel("Token").fill("not-the-token");
		await page.getByRole("button", { name: "Join" }).click();
		await page
			.getByRole("alert")
			.getByText(/does not know the token/)
			.waitFor();
		assert.deepEqual(await violations(page), []);
		await page.getByLabel("Token").fill(TOKEN);
		await page.keyboard.press("Enter");
		await page.locator("[data-state=ready]").waitFor();
		await page.reload();
		await page.locator("[data-state=ready]").waitFor();
		assert.ok(!page.url().includes(TOKEN));
		const other = await opened(`${secured.http}/console/`);
		await other.getByLabel("Token").waitFor();
		await other.close();
		await page.close();
		await secured.stop();
	});

	test("the console of a hub without tokens does not listen for other machines", async () => {
		const args = [
			"-m",
			"tidewire",
			"up",
			"--listen",
			"ws://127.0.0.1:0",
			"--http",
			"0.0.0.0:0",
			"--insecure",
			"--console",
		];
		const program = spawn(PYTHON, args, { stdio: ["ignore", "ignore", "pipe"] });
		let said = "";
		program.stderr.on("data", (text) => {
			said += text;
		});
		assert.equal(await new Promise((resolve) => program.once("close", resolve)), 1);
		assert.match(said, /console: everybody who reaches .* could look/);
	});
});
