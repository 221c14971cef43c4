/**
 * The demonstration `examples/live` in Chromium: a person opens the page, lets a day fly, and is
 * asked.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import test, { after, before, describe } from "node:test";
import type { Browser, Page } from "playwright-core";
import { launch } from "./chromium.js";
import { PYTHON, ROOT } from "./python.js";

/** Flights of 1 and 2 July 2013 in the files, counted by hand. */
const DAYS = { flights: 1911, cancelled: 104, late: 448 };
const PATIENCE_MS = 60_000;

describe("examples/live", { timeout: 180_000 }, () => {
	let program: ChildProcess;
	let url: string;
	let browser: Browser;
	const problems: string[] = [];

	before(async () => {
		program = spawn(PYTHON, [`${ROOT}examples/live/main.py`, "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
		const line = await new Promise<string>((resolve, reject) => {
			createInterface({ input: program.stdout as NodeJS.ReadableStream }).once("line", resolve);
			program.once("exit", (code) => reject(new Error(`examples/live ended with ${code}`)));
		});
		url = line.split(" ")[1] as string;
		browser = await launch();
	});

	after(async () => {
		await browser?.close();
		if (program?.exitCode === null && program.signalCode === null) {
			const ended = new Promise((resolve) => program.once("exit", resolve));
			program.kill("SIGTERM");
			await ended;
		}
	});

	async function opened(place: string): Promise<Page> {
		const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
		page.setDefaultTimeout(PATIENCE_MS);
		page.on("pageerror", (error) => problems.push(error.message));
		page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
		await page.goto(place);
		return page;
	}

	const number = async (page: Page, id: string): Promise<number> =>
		Number((await page.locator(`#${id}`).innerText()).replaceAll(",", ""));

	test("a day flies, the person is asked, and the numbers are those of the files", async () => {
		const page = await opened(url);
		await page.waitForSelector("body[data-state=ready]");
		await page.fill("#day", "2013-07-01");
		await page.fill("#days", "2");
		await page.locator("#rate").fill("4");
		await page.click("#go");
		await page.waitForSelector("#question:not([hidden])");
		assert.match(
			await page.locator("#asked").innerText(),
			/^\d+ departures were an hour late, or more\. Look closer\?$/,
		);
		assert.ok((await number(page, "n-all")) > 0 && (await number(page, "n-air")) > 0);
		// Nothing leaves while Python waits for the answer.
		const waiting = await number(page, "n-all");
		assert.ok(await drawn(page), "the map has flights on it");
		assert.equal(await number(page, "n-all"), waiting);
		await page.getByRole("button", { name: "Fly on" }).click();
		await page.locator("#rate").fill("8");
		// It is asked again and again on such a day.
		await page.locator("#choices").getByRole("button", { name: "Fly on" }).waitFor();
		for (let asked = 1; (await page.getAttribute("body", "data-state")) === "flying"; asked++) {
			assert.ok(asked < 40, "the run ends");
			const on = page.locator("#question:not([hidden])").getByRole("button", { name: "Fly on" });
			await Promise.race([on.click(), page.waitForSelector("body[data-state=done]")]);
		}
		await page.waitForSelector("body[data-state=done]");
		assert.match(await page.locator("#verdict").innerText(), /^All [\d,]+ totals equal those of a plain loop/);
		const numbers = [];
		for (const id of ["n-all", "n-cancelled", "n-late"]) {
			numbers.push(await number(page, id));
		}
		numbers.push(Number(await page.getAttribute("#alerts", "data-count")));
		assert.deepEqual(numbers, [DAYS.flights, DAYS.cancelled, DAYS.late, DAYS.late]);
		assert.ok((await page.locator("#carriers li").count()) >= 12);
		await page.close();
	});

	test("a page that is closed in the middle ends its run, and another one flies", async () => {
		const [one, other] = [await opened(url), await opened(url)];
		for (const page of [one, other]) {
			await page.waitForSelector("body[data-state=ready]");
			await page.fill("#day", "2013-01-01");
			await page.click("#go");
			await page.waitForFunction("document.getElementById('n-all').textContent !== '0'");
		}
		await one.close();
		await other.click("#go");
		await other.waitForSelector("body[data-state=done]");
		assert.match(await other.locator("#verdict").innerText(), /totals equal those of a plain loop/);
		await other.close();
	});

	test("without the token it says so, and nothing on the page is an error of a script", async () => {
		assert.deepEqual(problems, []);
		const page = await opened(url.replace(/#.*/, "#wrong-token"));
		await page.waitForFunction("document.getElementById('status').textContent.includes('token')");
		assert.equal(await page.getAttribute("body", "data-state"), "joining");
		await page.close();
	});

	test("a lost link stands out, and nothing can be begun", async () => {
		const page = await opened(url);
		await page.waitForSelector("body[data-state=ready]");
		await page.click("#go");
		await page.waitForFunction("document.getElementById('n-all').textContent !== '0'");
		program.kill("SIGKILL");
		await page.waitForSelector("body[data-state=lost]");
		assert.match(await page.locator("#status").innerText(), /Looking for the hub/);
		assert.ok(await page.locator("#go").isDisabled());
		await page.close();
	});

	/** True if the map has any of the colours of flights. */
	function drawn(page: Page): Promise<boolean> {
		return page.evaluate(`(() => {
			const map = document.getElementById("map");
			const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
			const style = getComputedStyle(document.documentElement);
			const [r, g, b] = style.getPropertyValue("--late").trim().match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
			for (let at = 0; at < data.length; at += 4) {
				if (data[at + 3] > 200 && Math.hypot(data[at] - r, data[at + 1] - g, data[at + 2] - b) < 40) return true;
			}
			return false;
		})()`);
	}
});
