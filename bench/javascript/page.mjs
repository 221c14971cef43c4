/** A page of Chromium which runs the workloads itself: what goes to and fro between Node and the page is not measured. */
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const PLACES = ["chromium", "chromium-browser", "google-chrome"].map((name) => `/usr/bin/${name}`);
const OWN = new Set(["/workloads.mjs", "/page_links.mjs"]);
const CLIENT = dirname(fileURLToPath(import.meta.resolve("tidewire")));

/** Opens a page with one of the links of `page_links.mjs`. */
export async function pageOf(kind, url, timeoutMs) {
	const site = createServer((request, response) => {
		const file = fileOf(request.url ?? "");
		response.writeHead(file === undefined ? 404 : 200, { "content-type": file?.type ?? "text/plain" });
		response.end(file?.text);
	});
	await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
	const executablePath = PLACES.find((place) => existsSync(place));
	const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
	const page = await browser.newPage();
	await page.goto(`http://127.0.0.1:${site.address().port}/`);
	await page.evaluate(
		async ([own, hub, timeout]) => {
			const { LINKS } = await import("/page_links.mjs");
			const { run } = await import("/workloads.mjs");
			const link = await LINKS[own](hub, timeout);
			window.play = (workload, count) => run(link, workload, count);
		},
		[kind, url, timeoutMs],
	);
	return {
		run: (workload, count) => page.evaluate(([name, calls]) => window.play(name, calls), [workload, count]),
		pid: await rendererOf(browser),
		close: () => browser.close(),
	};
}

function fileOf(path) {
	if (path === "/") {
		return { type: "text/html", text: "<!doctype html><title>bench</title>" };
	}
	const inClient = normalize(path).match(/^\/client\/([\w.-]+\.js)$/)?.[1];
	if (inClient !== undefined) {
		return { type: "text/javascript", text: readFileSync(join(CLIENT, inClient)) };
	}
	return OWN.has(path) ? { type: "text/javascript", text: readFileSync(new URL(`.${path}`, import.meta.url)) } : undefined;
}

/** The process of the page. */
async function rendererOf(browser) {
	const session = await browser.newBrowserCDPSession();
	const { processInfo } = await session.send("SystemInfo.getProcessInfo");
	const renderers = processInfo.filter(({ type }) => type === "renderer");
	return renderers.reduce((one, other) => (other.cpuTime > one.cpuTime ? other : one)).id;
}
