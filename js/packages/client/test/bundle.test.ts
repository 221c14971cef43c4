/** The size of what a page loads, and what the package is made of. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { ROOT } from "./python.js";

const CLIENT = `${ROOT}js/packages/client/`;
const BYTES_MAX = 35_000;

async function bundled(source: string): Promise<number> {
	const { outputFiles } = await build({
		stdin: { contents: source, resolveDir: CLIENT, loader: "js" },
		bundle: true,
		minify: true,
		format: "esm",
		platform: "browser",
		target: "es2022",
		tsconfigRaw: "{}",
		write: false,
	});
	return gzipSync(outputFiles[0]?.contents ?? new Uint8Array(), { level: 9 }).length;
}

test("the bundle stays within its bound, minified and compressed", async (t) => {
	const bytes = await bundled('export * from "tidewire";');
	t.diagnostic(`${bytes} bytes`);
	assert.ok(bytes <= BYTES_MAX, `${bytes} bytes`);
});

test("what is not used is left out", async () => {
	assert.ok((await bundled('export { UUID } from "tidewire";')) < 3_000);
});

test("it depends on nothing", () => {
	const { dependencies } = JSON.parse(readFileSync(`${CLIENT}package.json`, "utf8")) as { dependencies?: object };
	assert.equal(dependencies, undefined);
});
