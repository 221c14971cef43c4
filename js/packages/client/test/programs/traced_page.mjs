/**
 * A page in Chromium that gives an orders service a callback, with spans of OpenTelemetry: `node
 * traced_page.mjs URL TRACEPARENT`. It prints a line once it watches. At the end of its input it
 * prints its spans, as `[id, parent, kind, name, trace]` in one line of JSON.
 */
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const [, , url, traceparent] = process.argv;
const executablePath = ["chromium", "chromium-browser", "google-chrome"]
	.map((name) => `/usr/bin/${name}`)
	.find(existsSync);

const PAGE = `
import * as opentelemetry from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { connect } from "./dist/index.js";
import { instrument } from "./dist/opentelemetry.js";

// The current span is known before the first await, as with any context manager of browsers.
let current = opentelemetry.ROOT_CONTEXT;
const manager = {
	active: () => current,
	with(context, run, self, ...args) {
		const outer = current;
		current = context;
		try {
			return run.apply(self, args);
		} finally {
			current = outer;
		}
	},
	bind: (context, run) => (...args) => manager.with(context, () => run(...args)),
	enable: () => manager,
	disable: () => manager,
};
const exporter = new InMemorySpanExporter();
opentelemetry.context.setGlobalContextManager(manager);
opentelemetry.propagation.setGlobalPropagator(new W3CTraceContextPropagator());
opentelemetry.trace.setGlobalTracerProvider(
	new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
);
window.watch = async (url, traceparent) => {
	const node = await connect(url, { name: "page" });
	instrument(node, opentelemetry);
	const orders = node.client("orders").with({ headers: { traceparent } });
	await orders.watch(async (item) => node.client("stock").take(item));
};
window.spans = () => {
	const kinds = ["internal", "server", "client", "producer", "consumer"];
	return exporter.getFinishedSpans().map((span) => {
		const { spanId, traceId } = span.spanContext();
		return [spanId, span.parentSpanContext?.spanId ?? "", kinds[span.kind], span.name, traceId];
	});
};
`;

const { outputFiles } = await build({
	stdin: { contents: PAGE, resolveDir: fileURLToPath(new URL("../..", import.meta.url)) },
	bundle: true,
	format: "esm",
	platform: "browser",
	target: "es2022",
	tsconfigRaw: "{}",
	write: false,
});
const script = outputFiles[0].text;
const site = createServer((request, response) => {
	const isScript = request.url === "/page.js";
	response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html" });
	response.end(isScript ? script : '<!doctype html><title>orders</title><script type="module" src="page.js"></script>');
});
await new Promise((resolve) => site.listen(0, "127.0.0.1", resolve));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
try {
	const page = await browser.newPage();
	await page.goto(`http://127.0.0.1:${site.address().port}/`);
	await page.evaluate(([at, parent]) => globalThis.watch(at, parent), [url, traceparent]);
	console.log("it watches");
	process.stdin.resume();
	await new Promise((resolve) => process.stdin.once("end", resolve));
	console.log(JSON.stringify(await page.evaluate(() => globalThis.spans())));
} finally {
	await browser.close();
	site.close();
}
